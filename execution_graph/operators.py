"""What the operators of a stage measured: read from reports of tasks, merged over tasks, joined with the bound plan.

A task reports metrics as bytes: the format (1), then for each metric its key and its value as varints. A key is twice
the metric's index in the bound plan, and one more if it is merged by maximum; others are summed. Zeros are left out.
"""

import binascii
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from onager.execution_graph.record import Record

MAX_REPORT_BYTES: Final = 8 * 1024
MAX_PLANS: Final = 4
"""The most bound plans of a stage whose metrics are kept; what tasks of others measured counts as not reported."""
_FORMAT: Final = b"\x01"
_MAX_KEY: Final = 2**12
_MAX_VALUE: Final = 2**63 - 1
_MAX_BYTES: Final = 9
"""Of a value, as a varint."""
_GOES_ON: Final = bytes(byte >= 0x80 for byte in range(256))

_REMEMBERED_BYTES: Final = 512
"""Reports that have no more are laid out once for all that are alike."""
_FEW: Final = 4
"""Reports that are read one by one."""

_Span = tuple[int, int]
"""The bytes of a number: the first one, and the one behind the last."""


class _Layout(NamedTuple):
    """Where the numbers of a report lie."""

    keys: tuple[_Span, ...]
    values: tuple[_Span, ...]
    wide_keys: tuple[_Span, ...]
    """The keys of more than a byte, which may be too large."""


Pairs = tuple[tuple[int, int], ...]
"""(key, value), keys ascending, values above 0."""


class OperatorTotals(Record, frozen=True, kw_only=True):
    """What the tasks of a stage under one bound plan measured, together."""

    bound_plan: str
    """The bound plan, by content."""
    tasks: int
    """How many partitions are in it, each with its first success; those that are in no totals were not reported."""
    values: Pairs


class OperatorReport(NamedTuple):
    """What one task measured, as its event has it."""

    bound_plan: str
    """Empty: the first one of the stage."""
    metrics: str
    """The bytes of the report, as Base64; empty: it reported none."""


def metrics_text(data: bytes) -> str:
    """Return the metrics that a task reported as text for its event; empty if they are of a format of another version.

    What is damaged is found, and left out, when it is added up.
    """
    return binascii.b2a_base64(data, newline=False).decode() if data[:1] == _FORMAT else ""


def with_reports(totals: tuple[OperatorTotals, ...], reports: Iterable[OperatorReport]) -> tuple[OperatorTotals, ...]:
    """Return *totals* of a stage with further *reports*; sums stop at 2**63 - 1.

    It runs for every task. Reports of a stage mostly have the same keys, and numbers of the same lengths: such reports
    are added up together, byte by byte.
    """
    merged = {each.bound_plan: each for each in totals}
    alike: dict[str, dict[_Layout, list[bytes]]] = {}
    """By bound plan, and by where the numbers lie: the reports."""
    for report in reports:
        name = report.bound_plan or next(iter(merged), "")
        data = _bytes_of(report.metrics)
        layout = _layout_of(data)
        if layout is None or not name or (name not in merged and len(merged) == MAX_PLANS):
            continue
        if name not in merged:
            merged[name] = OperatorTotals(bound_plan=name, tasks=0, values=())
        alike.setdefault(name, {}).setdefault(layout, []).append(data)
    for name, groups in alike.items():
        known = merged[name]
        found = dict(known.values)
        for layout, group in groups.items():
            _add(found, layout, group)
        is_in_order = len(found) == len(known.values)  # no key is new, and a dict keeps its order
        values = tuple(found.items() if is_in_order else sorted(found.items()))
        tasks = known.tasks + sum(map(len, groups.values()))
        merged[name] = OperatorTotals(bound_plan=name, tasks=tasks, values=values)
    return tuple(merged.values())


def _add(found: dict[int, int], layout: _Layout, reports: Sequence[bytes]) -> None:
    """Add to *found* what *reports* have."""
    columns = list(zip(*reports, strict=True)) if len(reports) >= _FEW else []
    of_keys = [column for begin, end in layout.keys for column in columns[begin:end]]
    if not columns or any(min(column) != max(column) for column in of_keys):
        for report in reports:
            for (begin, end), (value_begin, value_end) in zip(layout.keys, layout.values, strict=True):
                _count(found, _number(report[begin:end]), _number(report[value_begin:value_end]))
        return
    for (key_begin, key_end), (begin, end) in zip(layout.keys, layout.values, strict=True):
        key = _number(reports[0][key_begin:key_end])
        if key % 2:
            _count(found, key, max(map(_number, zip(*columns[begin:end], strict=True))))
        else:
            marks = 0x80 * len(reports)  # what the marks that numbers go on add to the sum of a column
            sums = [sum(column) - marks for column in columns[begin:end]]
            sums[-1] += marks
            _count(found, key, sum(each << 7 * i for i, each in enumerate(sums)))


def _count(found: dict[int, int], key: int, value: int) -> None:
    before = found.get(key, 0)
    found[key] = max(before, value) if key % 2 else min(before + value, _MAX_VALUE)


def _bytes_of(text: str) -> bytes:
    """Return the bytes of a report; none if *text* is no Base64."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return b""


def _layout_of(data: bytes) -> _Layout | None:
    """Return where the numbers of a report lie; None if it is nothing that this version reads."""
    if data[:1] != _FORMAT or len(data) > MAX_REPORT_BYTES:
        return None
    read = _layout if len(data) <= _REMEMBERED_BYTES else _layout.__wrapped__  # large ones would take much memory
    layout: _Layout | None = read(data.translate(_GOES_ON))
    if layout is None or not layout.wide_keys:
        return layout
    return None if any(_number(data[begin:end]) >= _MAX_KEY for begin, end in layout.wide_keys) else layout


@lru_cache(maxsize=1_024)
def _layout(goes_on: bytes) -> _Layout | None:
    """Return where numbers lie, given of which bytes they go on (1) in the next; None where that is no report."""
    ends = [i for i, more in enumerate(goes_on, 1) if not more]
    spans = tuple(zip([0, *ends[:-1]], ends, strict=True))
    is_report = ends[-1:] == [len(goes_on)] and len(spans) % 2 == 1  # the format, and pairs
    if not is_report or any(end - begin > _MAX_BYTES for begin, end in spans):
        return None
    keys = spans[1::2]
    return _Layout(keys, spans[2::2], tuple((begin, end) for begin, end in keys if end - begin > 1))


def _number(data: Sequence[int]) -> int:
    """Return the number that a varint stands for."""
    number = 0
    for byte in reversed(data):
        number = number << 7 | byte & 0x7F
    return number
