"""The output of commands: tables for people, JSON and CSV for programs, and Arrow files."""

import base64
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ROWS = 1000
"""How many rows of a result a table shows; other formats write all rows."""

_CELL_WIDTH = 60


def print_json(value: object) -> None:
    """Print *value* as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    cell_width: int | None = _CELL_WIDTH,
) -> None:
    """Print rows under *headers*, in columns of at most *cell_width*, with numbers aligned right."""
    values = [list(row) for row in rows]
    cells = [[_cell(value, cell_width) for value in row] for row in values]
    widths = [max([len(header), *(len(row[i]) for row in cells)]) for i, header in enumerate(headers)]
    right = [all(_is_number(row[i]) for row in values) and bool(values) for i in range(len(headers))]

    def line(texts: Sequence[str]) -> str:
        padded = (text.rjust(w) if r else text.ljust(w) for text, w, r in zip(texts, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    sys.stdout.write(line(headers) + "\n" + "  ".join("-" * width for width in widths) + "\n")
    sys.stdout.writelines(line(row) + "\n" for row in cells)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


def _cell(value: object, width: int | None) -> str:
    if value is None:
        return "NULL"
    text = value if isinstance(value, str) else _text(value)
    text = text.replace("\n", "\\n")
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def _text(value: object) -> str:
    """Return a value as CSV and tables show it."""
    match value:
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case list() | dict():
            return json_text(value)
        case _:
            return str(value)


def json_text(value: object) -> str:  # noqa: C901, PLR0911 - one case a type
    """Return a value of a result as JSON; decimals keep all digits, NaN and infinities become strings."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return repr(value) if value - value == 0 else json.dumps(str(value))
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case list() | tuple():
            return "[" + ", ".join(json_text(item) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{json.dumps(str(k))}: {json_text(v)}" for k, v in value.items()) + "}"
        case datetime() | date() | time():
            return json.dumps(value.isoformat())
        case timedelta():
            return json.dumps(str(value))
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case _:
            return json.dumps(str(value), ensure_ascii=False)


def unique_names(names: Sequence[str]) -> list[str]:
    """Return *names* with a number appended to repeated ones, so that all can be keys."""
    taken: set[str] = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        unique, number = name, 2
        while unique in seen or (unique != name and unique in taken):
            unique, number = f"{name}_{number}", number + 1
        seen.add(unique)
        result.append(unique)
    return result


def _rows(batches: Iterable["pa.RecordBatch"]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        if batch.num_columns == 0:
            yield from [()] * batch.num_rows
        else:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write_table(schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]) -> None:
    """Print the first `TABLE_ROWS` rows as a table, and the number of all rows to standard error."""
    shown: list[tuple[Any, ...]] = []
    total = 0
    for batch in batches:
        if len(shown) < TABLE_ROWS:
            shown.extend(_rows([batch.slice(0, TABLE_ROWS - len(shown))]))
        total += batch.num_rows
    print_table(schema.names, shown)
    more = f", of which the first {len(shown):,} are shown (-o csv, -o json and -o arrow=FILE write all)"
    sys.stdout.flush()
    print(f"({total:,} row{'' if total == 1 else 's'}{more if total > len(shown) else ''})", file=sys.stderr)


def write_json(schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]) -> None:
    """Print an array of objects, one row per line; repeated column names get a number."""
    names = [json.dumps(name, ensure_ascii=False) for name in unique_names(schema.names)]
    separator = "[\n"
    for row in _rows(batches):
        fields = ", ".join(f"{name}: {json_text(value)}" for name, value in zip(names, row, strict=True))
        sys.stdout.write(f"{separator}{{{fields}}}")
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def write_csv(schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]) -> None:
    """Print a header and one line per row; NULL is an empty field."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(schema.names)
    writer.writerows(["" if v is None else _text(v) for v in row] for row in _rows(batches))


def write_arrow(path: Path, schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]) -> int:
    """Write an Arrow IPC file (Feather V2) at *path*, and return how many rows it has."""
    import pyarrow as pa

    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
