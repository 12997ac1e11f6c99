"""The conf keys ``onager.speculation…``: second attempts of a job's stragglers."""

import math
from typing import Final

from onager.errors import InvalidSettingError
from onager.execution_graph import SpeculationPolicy
from onager.job_settings import (
    SPECULATION,
    SPECULATION_MIN_RUNTIME,
    SPECULATION_MULTIPLIER,
    SPECULATION_QUANTILE,
    whole_number,
)
from onager.protocol import onager_pb2 as pb

_DEFAULTS: Final = SpeculationPolicy()
_MAX_MULTIPLIER: Final = 1_000.0
_DAY_MS: Final = 24 * 3_600 * 1_000


def speculation_of(spec: pb.JobSpec) -> SpeculationPolicy | None:
    """Return the policy for second attempts of the job's tasks, None for no second attempts.

    `InvalidSettingError` for an invalid value, even if speculation is off.
    """
    policy = SpeculationPolicy(
        multiplier=_number(spec, SPECULATION_MULTIPLIER, _DEFAULTS.multiplier, 1.0, _MAX_MULTIPLIER),
        quantile=_number(spec, SPECULATION_QUANTILE, _DEFAULTS.quantile, 0.0, 1.0),
        min_task_runtime_ms=_milliseconds(spec, SPECULATION_MIN_RUNTIME, _DEFAULTS.min_task_runtime_ms),
    )
    text = spec.conf.get(SPECULATION, "false")
    if text.strip().lower() not in ("true", "false"):
        raise InvalidSettingError(SPECULATION, text, "give true or false")
    return policy if text.strip().lower() == "true" else None


def _number(spec: pb.JobSpec, key: str, default: float, least: float, most: float) -> float:
    text = spec.conf.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise InvalidSettingError(key, text, f"give a number from {least:g} to {most:g}, such as {default:g}")
    return number


def _milliseconds(spec: pb.JobSpec, key: str, default: int) -> int:
    text = spec.conf.get(key)
    if text is None:
        return default
    milliseconds = whole_number(text, _DAY_MS)
    if milliseconds is None:
        raise InvalidSettingError(key, text, f"give whole milliseconds, 0 to {_DAY_MS}, such as {default}")
    return milliseconds
