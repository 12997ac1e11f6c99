"""The settings of a job that are Onager's own, ``--conf onager.…``: their names, by who reads them."""

import difflib
from collections.abc import Mapping
from typing import Final, Literal

from onager.errors import InvalidSettingError
from onager.ids import script_of

PREFIX: Final = "onager."

FUSION_MAX_BYTES: Final = "onager.fusion.maxBytes"
"""A query with no more input than this is not cut; of Parquet and ORC files only the columns that it needs count."""
SHUFFLE_TARGET_BYTES: Final = "onager.shuffle.targetBytes"
"""The input that one task after an exchange shall get; schedulers read it, too, for what was measured."""
SORT_PARALLEL_FROM_BYTES: Final = "onager.sort.parallelFromBytes"
"""From this much input on, several tasks sort it; 0: always."""
FEED_FROM_FILES: Final = "onager.feed.fromFiles"
"""From this many files on, a directory is read while it is still being listed; 0 (the default): never."""
METRICS: Final = "onager.metrics"
"""What tasks report of their plan's operators: ``off``, ``rows`` (the default), or ``full``."""
PLANNING_TIMEOUT: Final = "onager.planning.timeout"
"""How long planning a job may take, with its Python function, and planning the rest of it again: ``90s``, ``15m`` or
``2h``; 0: as long as it wants."""
OVERWRITE_ANYTHING: Final = "onager.overwrite.anything"
"""Whether an output may replace a directory that holds more than a dataset: ``true`` or ``false`` (the default)."""

WEIGHT: Final = "onager.weight"
"""A job's share of the slots, relative to other jobs."""
SESSION: Final = "onager.session"
"""The session of a job; by default each client has one of its own."""
SESSION_MAX_TASKS: Final = "onager.session.max-tasks"
"""The most tasks that a job's session may have running for the job to get another one; 0: any number."""
DEADLINE: Final = "onager.deadline"
"""How long after its submission a job fails if it has not ended, such as ``90s``, ``15m``, ``2h`` or ``1d``."""
EXCHANGE: Final = "onager.exchange"
"""How rows go from stage to stage: ``durable``, by files (the default), or ``streaming``, while both run."""
TRACEPARENT: Final = "onager.traceparent"
"""The caller's span, as in the header ``traceparent`` of W3C Trace Context: the job's trace is linked to it."""
ADAPTIVE: Final = "onager.adaptive"
"""Whether stages are laid out and planned anew by what was measured: ``on`` (the default), ``off``, or ``force``, for
tests: planned anew as often as can be, by sizes that are made up."""
ADAPTIVE_DEFAULT: Final = "on"
"""What holds for a job that does not say; the scheduler and the planning task agree on it."""
ADAPTIVE_FUSE_BYTES: Final = "onager.adaptive.fuseBytes"
"""Stages that read no more than this in all become one task."""
REUSE: Final = "onager.reuse"
"""Whose outputs stages may take instead of computing the same again: nobody's (``off``), those of other steps of the
same script (``job``, the default), or also of the user's other jobs that have the same setting (``cluster``)."""
SPECULATION: Final = "onager.speculation"
"""Whether stragglers get second attempts: ``true`` or ``false``."""
SPECULATION_MULTIPLIER: Final = "onager.speculation.multiplier"
SPECULATION_QUANTILE: Final = "onager.speculation.quantile"
SPECULATION_MIN_RUNTIME: Final = "onager.speculation.min-task-runtime-ms"

PLANNERS: Final = (
    FUSION_MAX_BYTES, SHUFFLE_TARGET_BYTES, SORT_PARALLEL_FROM_BYTES, FEED_FROM_FILES, METRICS, PLANNING_TIMEOUT,
    REUSE, OVERWRITE_ANYTHING,
)  # fmt: skip
"""The settings that the planning task reads."""
SCHEDULERS: Final = (
    WEIGHT, SESSION, SESSION_MAX_TASKS, DEADLINE, EXCHANGE, TRACEPARENT, ADAPTIVE, ADAPTIVE_FUSE_BYTES,
    SPECULATION, SPECULATION_MULTIPLIER, SPECULATION_QUANTILE, SPECULATION_MIN_RUNTIME,
)  # fmt: skip
"""The settings that schedulers read when the job is submitted."""


ReuseScope = Literal["off", "job", "cluster"]
_SCOPES: Final[tuple[ReuseScope, ...]] = ("off", "job", "cluster")

_MAX_BYTES: Final = 1 << 62
_MAX_SECONDS: Final = 365 * 86_400


def whole_number(text: str, most: int) -> int | None:
    """Return the number from 0 to *most* in *text*, None for any other text, however long it is."""
    digits = text.lstrip("0") or text[:1]
    is_number = len(digits) <= len(str(most)) and text.isascii() and text.isdecimal()
    return int(digits) if is_number and int(digits) <= most else None


def bytes_of(conf: Mapping[str, str], key: str, default: int) -> int:
    """Return the setting *key*, a number of bytes, optionally with k, m or g; *default* if it is not given.

    `InvalidSettingError` when it is not one.
    """
    text = conf.get(key, "").strip().lower()
    if not text:
        return default
    digits = text.removesuffix("b").removesuffix("i")
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(digits[-1:], 1)
    number = whole_number(digits[:-1] if factor > 1 else digits, _MAX_BYTES)
    if number is None:
        raise InvalidSettingError(key, conf[key], "give a number of bytes, such as 67108864, 64m or 1g")
    return number * factor


def deadline_ms_of(conf: Mapping[str, str]) -> int:
    """Return after how many milliseconds the job fails if it has not ended; 0: never.

    `InvalidSettingError` when the setting is no duration.
    """
    text = conf.get(DEADLINE, "").strip().lower()
    if not text:
        return 0
    unit_s = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}.get(text[-1:], 0)
    number = whole_number(text[:-1], _MAX_SECONDS)
    if not unit_s or not number or number * unit_s > _MAX_SECONDS:
        raise InvalidSettingError(DEADLINE, conf[DEADLINE], "give a duration up to 365d, such as 90s, 15m, 2h or 1d")
    return 1000 * number * unit_s


def reuse_of(conf: Mapping[str, str]) -> ReuseScope:
    """Return whose outputs the job's stages may take; `InvalidSettingError` for another text."""
    text = conf.get(REUSE, "job").strip().lower()
    scope = next((scope for scope in _SCOPES if scope == text), None)
    if scope is None:
        raise InvalidSettingError(REUSE, conf[REUSE], "give off, job or cluster")
    return scope


def may_be_reused(conf: Mapping[str, str], job_id: str) -> bool:
    """Return whether other jobs may take outputs of a job: by default those of other steps of the same script."""
    scope = reuse_of(conf)
    return scope == "cluster" or (scope == "job" and script_of(job_id) is not None)


def overwrites_anything(conf: Mapping[str, str]) -> bool:
    """Return whether an output may replace what is no dataset; `InvalidSettingError` for another text."""
    text = conf.get(OVERWRITE_ANYTHING, "false").strip().lower()
    if text not in {"true", "false"}:
        raise InvalidSettingError(OVERWRITE_ANYTHING, conf[OVERWRITE_ANYTHING], "give true or false")
    return text == "true"


def check_known(key: str, value: str) -> None:
    """Raise `InvalidSettingError` unless *key*, which begins with ``onager.``, is a setting of a job."""
    known = (*PLANNERS, *SCHEDULERS)
    if key not in known:
        meant = difflib.get_close_matches(key, known, 1, cutoff=0.8)
        advice = f"is {meant[0]} meant?" if meant else f"a job knows {', '.join(known)}"
        raise InvalidSettingError(key, value, f"there is no such setting; {advice}")
