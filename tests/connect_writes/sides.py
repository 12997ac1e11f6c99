"""Two sessions that are given the same calls, and what is the same and what differs between them."""

import contextlib
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.connect_writes.calls import DIRECTORY, Call
from tests.support.spark.one_executor import as_multiset

_REFUSALS: Final = frozenset({"UNSUPPORTED_FEATURE", "SinkError"})
"""With these what is not done here is refused by name; Spark's own conditions have more parts."""
_READ: Final = ("parquet", "orc", "json", "csv")
_LAID_OUT: Final = frozenset(
    {"saveAsTable", "create", "createOrReplace", "replace", "ctas", "ctas at", "add columns", "rename column"}
)
"""Calls after which the columns of a table are compared as DESCRIBE shows them."""
_OF_OTHER_CATALOGS: Final = frozenset({"append", "overwritePartitions", "replace", "createOrReplace"})
"""What Spark's DataFrameWriterV2 does with tables of other catalogs only, and here with all."""
_OTHER_CATALOG: Final = frozenset({"_LEGACY_ERROR_TEMP_1012", "UNSUPPORTED_FEATURE.TABLE_OPERATION"})
"""Spark's conditions for these."""
_DROPPING: Final = frozenset({"saveAsTable", "replace view"})
"""Calls with which Spark drops what is there before it has found every error."""
_OVERWRITTEN: Final = frozenset({"UNSUPPORTED_OVERWRITE.TABLE", "UNSUPPORTED_OVERWRITE.PATH"})
"""Spark's conditions for reading what is overwritten, which is done here."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: rows and their schema, or an error."""

    rows: Any = None
    schema: str = ""
    condition: str = ""
    message: str = ""

    @property
    def is_error(self) -> bool:
        return bool(self.condition)

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}" if self.is_error else f"{self.schema} {self.rows!r}"[:300]


@dataclass(slots=True)
class Side:
    """A session, and a directory that only it writes to."""

    name: str
    spark: Any
    functions: Any
    directory: Path

    def run(self, text: str) -> Outcome:
        """Carry a call out."""
        return self._outcome(lambda: self._evaluated(text))

    def _evaluated(self, text: str) -> Any:
        names = {"spark": self.spark, "F": self.functions}
        return eval(text.replace(DIRECTORY, str(self.directory)), names)

    def look(self, touched: str) -> Outcome:
        """Return the rows of a table, a view or a dataset, or why there are none."""
        if touched.startswith("path:"):
            return self._outcome(lambda: self._read(self.directory / touched.removeprefix("path:")))
        return self._outcome(lambda: self.spark.table(touched))

    def layout(self, table: str) -> Outcome:
        """Return the columns of a table as DESCRIBE shows them."""
        return self._outcome(lambda: self.spark.sql(f"DESCRIBE {table}"))

    def _read(self, directory: Path) -> Any:
        names = [each.name for each in directory.rglob("part-*")]
        form = next((form for form in _READ for name in names if f".{form}" in name), "")
        if not form:
            raise FileNotFoundError("there are no files of a format that is read")
        # Which file's columns count, and come first, does not follow from their names, which are drawn.
        reader = self.spark.read.option("mergeSchema", "true")
        found = reader.format("text" if form == "csv" else form).load(str(directory))
        return found.select(*(f"`{name}`" for name in sorted(found.columns, key=str.lower)))

    def forget(self, touched: str) -> None:
        """Remove a table, a view or a dataset."""
        if touched.startswith("path:"):
            shutil.rmtree(self.directory / touched.removeprefix("path:"), ignore_errors=True)
            return
        for kind in ("VIEW", "TABLE"):
            with contextlib.suppress(Exception):
                self.spark.sql(f"DROP {kind} IF EXISTS {touched}").collect()

    @staticmethod
    def _outcome(call: Callable[[], Any]) -> Outcome:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                value = call()
                if hasattr(value, "collect"):
                    schema, value = value.schema.simpleString(), as_multiset([tuple(row) for row in value.collect()])
                    return Outcome(value, schema)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
            return Outcome(condition=condition, message=" ".join(str(error).split())[:300])
        if hasattr(value, "to_dict"):
            value = as_multiset([tuple(row.items()) for row in value.to_dict("records")])
        elif isinstance(value, list):
            value = as_multiset([tuple(row) for row in value])
        return Outcome((value, _sorted(printed.getvalue())))


def _sorted(shown: str) -> list[str]:
    return sorted(re.sub(r"\s+", " ", line) for line in shown.splitlines())


@dataclass(slots=True)
class Comparison:
    """Plain Spark and Onager side by side."""

    plain: Side
    ours: Side
    counts: Counter[str] = field(default_factory=Counter)
    paths: dict[str, set[str]] = field(default_factory=dict)
    """Where tables may lie, as of the calls that have named a table and a path."""
    differences: list[str] = field(default_factory=list)

    def give(self, call: Call) -> str:
        """Give a call to both sides; return what is different, or ""."""
        paths = {touched for touched in call.touches if touched.startswith("path:")}
        for touched in call.touches:
            self.paths.setdefault(touched, set()).update(paths)
        before = {touched: self.plain.look(touched) for touched in call.touches} if call.what in _DROPPING else {}
        expected, got = self.plain.run(call.text), self.ours.run(call.text)
        if expected.condition == "LOCATION_ALREADY_EXISTS":  # what an earlier error of Spark's has left
            self._tidy(expected.message)
            expected = self.plain.run(call.text)
        verdict = self._verdict(call, expected, got)
        found = [] if verdict != "different" else [f"Spark: {expected}\n  here:  {got}"]
        for touched in call.touches:
            one, other = self._looks(touched, is_laid_out=call.what in _LAID_OUT)
            if one == other:
                continue
            if (
                verdict == "same"
                and expected.is_error
                and touched in before
                and other[0] == _without_message(before[touched])
            ):
                verdict = "kept"  # Spark has dropped the table before it found the error
            elif verdict in {"same", "different"}:
                found.append(f"afterwards, {touched}\n  Spark: {one[0]}\n  here:  {other[0]}")
            for side in (self.plain, self.ours):
                for each in (touched, *self.paths[touched]):
                    side.forget(each)
        self.counts["different" if found else verdict] += 1
        self.counts["errors of Spark"] += expected.is_error
        if not found:
            return ""
        self.differences.append(f"{call.text}\n  " + "\n  ".join(found))
        return self.differences[-1]

    def _looks(self, touched: str, *, is_laid_out: bool) -> tuple[list[Outcome], list[Outcome]]:
        one, other = ([_without_message(side.look(touched))] for side in (self.plain, self.ours))
        if one == other and not one[0].is_error and is_laid_out and not touched.startswith("path:"):
            one, other = ([_without_message(side.layout(touched))] for side in (self.plain, self.ours))
        if touched.startswith("path:"):  # files may differ in the case of a column
            one, other = ([replace(each[0], schema=each[0].schema.lower())] for each in (one, other))
        return one, other

    def _verdict(self, call: Call, expected: Outcome, got: Outcome) -> str:
        if got.condition in _REFUSALS:
            return "refused"
        if expected.is_error and not got.is_error:
            is_more = (
                call.what in _OF_OTHER_CATALOGS and expected.condition in _OTHER_CATALOG
            ) or expected.condition in _OVERWRITTEN
            return "more" if is_more else "different"
        if expected.is_error:
            if call.what in _OF_OTHER_CATALOGS and expected.condition in _OTHER_CATALOG:
                return "same"
            return "same" if expected.condition == got.condition else "different"
        return "same" if (expected.rows, expected.schema) == (got.rows, got.schema) else "different"

    def _tidy(self, message: str) -> None:
        if place := re.search(r"file:(/[^\s'`]+)", message):
            shutil.rmtree(place[1], ignore_errors=True)


def _without_message(outcome: Outcome) -> Outcome:
    return Outcome(outcome.rows, outcome.schema, outcome.condition)
