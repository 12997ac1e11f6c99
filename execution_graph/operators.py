"""What the operators of a stage measured: read from reports of tasks, merged over tasks, joined with the bound plan.

A task reports metrics as bytes: the format (1), then for each metric its key and its value as varints. A key is twice
the metric's index in the bound plan, and one more if it is merged by maximum; others are summed. Zeros are left out.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
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
    """How many partitions are in it, each with its first success; those that are in no totals were not reported."""
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
    merged = {each.bound_plan: each for each in totals}
    begun: dict[str, tuple[dict[int, int], int]] = {}
    """By bound plan that something is added to: its values so far, and how many tasks they are of."""
    for report in reports:
        name = report.bound_plan or next(iter(merged), "")
        pairs = _pairs_of_text(report.metrics)
        if pairs is None or not name or (name not in merged and len(merged) == MAX_PLANS):
            continue
        if name not in merged:
            merged[name] = OperatorTotals(bound_plan=name, tasks=0, values=())
        found, tasks = begun.get(name) or (dict(merged[name].values), merged[name].tasks)
        for key, value in pairs:
            before = found.get(key, 0)
            found[key] = max(before, value) if key % 2 else min(before + value, _MOST_VALUE)
        begun[name] = found, tasks + 1
    for name, (found, tasks) in begun.items():
        is_in_order = len(found) == len(merged[name].values)  # no key is new, and a dict keeps its order
        values = tuple(found.items() if is_in_order else sorted(found.items()))
        merged[name] = OperatorTotals(bound_plan=name, tasks=tasks, values=values)
    return tuple(merged.values())


def _pairs_of_text(text: str) -> Pairs | None:
    try:
        return _pairs(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None


@lru_cache(maxsize=64)  # what was just checked, when its report arrived, is merged right after
def _pairs(data: bytes) -> Pairs | None:
    """Return what a task reported, or None if it is nothing that this version reads."""
    if not data or data[0] != _FORMAT or len(data) > MAX_REPORT_BYTES:
        return None
    numbers = _varints(data[1:])
    if numbers is None or len(numbers) % 2:
        return None
    keys, values = numbers[::2], numbers[1::2]
    return tuple(zip(keys, values, strict=True)) if max(keys, default=0) < _MOST_KEY else None


def _varints(data: bytes) -> list[int] | None:
    """Return the numbers in *data*; None if one is cut off, or larger than 63 bits. It runs for every task."""
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        if byte >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                return None
        elif not shift:
            numbers.append(byte)
        else:
            number |= byte << shift
            if number > _MOST_VALUE:
                return None
            numbers.append(number)
            number = shift = 0
    return None if shift else numbers
