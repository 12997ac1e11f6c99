"""What the operators of a stage measured: read from reports of tasks, merged over tasks, joined with the bound plan.

A task reports metrics as bytes: the format (1), then for each metric its key and its value as varints. A key is twice
the metric's index in the bound plan, and one more if it is merged by maximum; others are summed. Zeros are left out.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MAX_REPORT_BYTES: Final = 8 * 1024
MAX_PLANS: Final = 4
"""The most bound plans of a stage whose metrics are kept; what tasks of others measured counts as not reported."""
_FORMAT: Final = 1
_MOST_KEY: Final = 2**12
_MOST_VALUE: Final = 2**63 - 1

Pairs = tuple[tuple[int, int], ...]
"""(key, value), keys ascending, values above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTotals:
    """What the tasks of a stage under one bound plan measured, together."""

    bound_plan: str
    """The bound plan, by content."""
    tasks: int
    """How many accepted successes are in it. Successes of the stage that are in no totals were not reported."""
    values: Pairs


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What one task measured, as its event has it."""

    bound_plan: str
    """Empty: the first one of the stage."""
    metrics: str
    """The bytes of the report, as Base64; empty: it reported none."""


def metrics_text(data: bytes) -> str:
    """Return the metrics that a task reported as text for its event; empty if they cannot be read."""
    return base64.b64encode(data).decode() if _pairs(data) is not None else ""


def with_reports(totals: tuple[OperatorTotals, ...], reports: Iterable[OperatorReport]) -> tuple[OperatorTotals, ...]:
    """Return *totals* of a stage with further *reports*; sums stop at 2**63 - 1."""
    values = {each.bound_plan: dict(each.values) for each in totals}
    tasks = {each.bound_plan: each.tasks for each in totals}
    for report in reports:
        name = report.bound_plan or next(iter(values), "")
        pairs = _pairs_of_text(report.metrics)
        if pairs is None or not name or (name not in values and len(values) == MAX_PLANS):
            continue
        found = values.setdefault(name, {})
        tasks[name] = tasks.get(name, 0) + 1
        for key, value in pairs:
            before = found.get(key, 0)
            found[key] = max(before, value) if key % 2 else min(before + value, _MOST_VALUE)
    return tuple(
        OperatorTotals(bound_plan=name, tasks=tasks[name], values=tuple(sorted(found.items())))
        for name, found in values.items()
    )


def _pairs_of_text(text: str) -> list[tuple[int, int]] | None:
    try:
        return _pairs(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None


def _pairs(data: bytes) -> list[tuple[int, int]] | None:
    """Return what a task reported, or None if it is nothing that this version reads."""
    if not data or data[0] != _FORMAT or len(data) > MAX_REPORT_BYTES:
        return None
    try:
        numbers = list(_varints(data[1:]))
    except ValueError:
        return None
    if len(numbers) % 2 or any(key >= _MOST_KEY for key in numbers[::2]):
        return None
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _varints(data: bytes) -> Iterator[int]:
    """Yield the numbers in *data*; raises ValueError if one is cut off, or larger than 63 bits."""
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            if number > _MOST_VALUE:
                raise ValueError(number)
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError(shift)
    if shift:
        raise ValueError(data)
