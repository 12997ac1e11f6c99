"""Options of the formats of views and results: which exist, and which a result is written with."""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final

from onager.errors import PlanningError
from onager.executor.exchange import has_odd_keys
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.access import refused_option
from onager.protocol import onager_pb2 as pb

_SPARK = "org.apache.spark.sql."
_LISTED: Final = {
    "csv": f"{_SPARK}catalyst.csv.CSVOptions",
    "json": f"{_SPARK}catalyst.json.JSONOptions",
    "orc": f"{_SPARK}execution.datasources.orc.OrcOptions",
    "parquet": f"{_SPARK}execution.datasources.parquet.ParquetOptions",
    "text": f"{_SPARK}execution.datasources.text.TextOptions",
    "xml": f"{_SPARK}catalyst.xml.XmlOptions",
}
"""Where Spark lists the options of a format."""
_OF_FILES: Final = f"{_SPARK}execution.datasources.FileIndexOptions"
_READING_FILES: Final = frozenset({"ignorecorruptfiles", "ignoredpathsegmentregex"})
_READING_ALONE: Final = {
    "csv": frozenset(
        {
            "columnnameofcorruptrecord", "columnpruning", "enabledatetimeparsingfallback", "enforceschema",
            "inferschema", "inputbuffersize", "maxcharspercolumn", "maxcolumns", "mode", "multiline", "nanvalue",
            "negativeinf", "positiveinf", "preferdate", "samplingratio", "singlevariantcolumn",
            "unescapedquotehandling",
        }
    ),
    "json": frozenset(
        {
            "allowbackslashescapinganycharacter", "allowcomments", "allownonnumericnumbers", "allownumericleadingzeros",
            "allowsinglequotes", "allowunquotedcontrolchars", "allowunquotedfieldnames", "columnnameofcorruptrecord",
            "dropfieldifallnull", "enabledatetimeparsingfallback", "explodeembeddedarray", "infertimestamp", "mode",
            "multiline", "prefersdecimal", "primitivesasstring", "samplingratio", "singlevariantcolumn", "useunsaferow",
        }
    ),
    "orc": frozenset({"mergeschema"}),
    "parquet": frozenset({"datetimerebasemode", "int96rebasemode", "mergeschema"}),
    "text": frozenset({"wholetext"}),
    "xml": frozenset(
        {
            "columnnameofcorruptrecord", "excludeattribute", "ignorenamespace", "ignoresurroundingspaces",
            "inferschema", "mode", "multiline", "preferdate", "prefersdecimal", "rowvalidationxsdpath", "samplingratio",
            "singlevariantcolumn", "uselegacyxmlparser", "wildcardcolname",
        }
    ),
}  # fmt: skip
_WRITING_ALONE: Final = {
    "csv": frozenset({"codec", "compression", "escapequotes", "quoteall"}),
    "json": frozenset({"compression", "ignorenullfields", "pretty", "sortkeys", "writenonasciicharacterascodepoint"}),
    "orc": frozenset({"compression", "orc.compress"}),
    "parquet": frozenset({"compression", "parquet.compression"}),
    "text": frozenset({"compression"}),
    "xml": frozenset({"arrayelementname", "compression", "declaration", "indent", "roottag", "validatename"}),
}
_OF_HADOOP: Final = ("fs.", "mapreduce.", "hadoop.")
"""Prefixes of settings that file systems and format libraries read; the format's name is one, too."""
_SAME: Final = {"charset": "encoding", "codec": "compression", "delimiter": "sep"}
"""Options with two names."""

_MOMENTS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's default formats drop microseconds, and the seconds of historical zone offsets."""
WRITTEN_WITH: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {
        "header": "true",
        "escape": '"',
        "lineSep": "\n",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **_MOMENTS,
    },
    "json": _MOMENTS,
    "xml": _MOMENTS,
}
"""Default options of a result written with ``--output``: lossless, and RFC 4180 for CSV."""
NULL_OF_ONE_COLUMN: Final = "\\N"
"""Null in a CSV file of one column, since readers skip empty lines."""


def merged(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return *defaults* overridden by *given*, where an option may have either of its two names."""
    said = {_canonical(key) for key in given}
    return {key: value for key, value in defaults.items() if _canonical(key) not in said} | dict(given)


def says(options: Mapping[str, str], name: str) -> bool:
    """Return whether *options* set the option *name*, under either of its names."""
    return any(_canonical(key) == _canonical(name) for key in options)


def _canonical(key: str) -> str:
    return _SAME.get(key.lower(), key.lower())


def check_options(jvm: Jvm, file_format: str, options: Mapping[str, str], whose: str, *, is_written: bool) -> None:
    """Raise `PlanningError` for the first option that has no effect when files of *file_format* are read or written."""
    wrong = _WRITING_ALONE if not is_written else _READING_ALONE
    names = _names(jvm, _LISTED[file_format]) + (["maxRecordsPerFile"] if is_written else _names(jvm, _OF_FILES))
    known = {name.lower(): name for name in names if name.lower() not in wrong[file_format]}
    if not is_written:
        known |= {name: name for name in _READING_FILES}
    for key in options:
        name = key.lower()
        if name == "maxrecordsperfile" and is_written and not re.fullmatch(r"\d{1,18}", options[key]):
            raise PlanningError(f"{whose}: {key} is a number of rows, not {options[key]}; 0 sets no limit")
        is_known = name in known or name.startswith((*_OF_HADOOP, f"{file_format}."))
        if is_known and (why := refused_option(jvm, key, options[key])) is not None:
            raise PlanningError(f"{whose}: the option {key} is refused: {why}")
        if is_known:
            continue
        raise PlanningError(
            f"{whose}: the option {key} has no effect when {file_format} is {'written' if is_written else 'read'}"
            f"{_advice(name, known, wrong[file_format], is_written=is_written)}"
        )


def _advice(name: str, known: Mapping[str, str], wrong: frozenset[str], *, is_written: bool) -> str:
    if name == "partitionby":
        return ": name the columns with --partition-by"
    if name in {"bucketby", "sortby"}:
        return ": a dataset has no buckets; set the number of its files with REPARTITION(n) in the query"
    if name == "path":
        return ": the path is not given as an option"
    if name in wrong:
        return f"; it is an option for {'reading (--view-option)' if is_written else 'writing (--output-option)'}"
    if meant := get_close_matches(name, known, n=1):
        return f": did you mean {known[meant[0]]}?"
    return f"; the options are {', '.join(sorted(known.values(), key=str.lower))}"


@cache
def _names(jvm: Jvm, listed: str) -> list[str]:
    return str(jvm.java_class(listed).getAllOptions().mkString(",")).split(",")


def completed(sink: pb.Sink, schema_json: str) -> pb.Sink:
    """Return *sink* with the options under which a result of this schema is written without loss.

    Raises `PlanningError` for columns whose values cannot be read back from the format.
    """
    fields = json.loads(schema_json)["fields"]
    for field in fields:
        why = _no_way_back(sink.format, field["type"])
        if why:
            raise PlanningError(f"column {field['name']} cannot be written as {sink.format} and read again: {why}")
    options = merged(WRITTEN_WITH.get(sink.format, {}), sink.options)
    if sink.format == "csv" and len(fields) == 1 and not says(options, "nullValue"):
        options["nullValue"] = NULL_OF_ONE_COLUMN
    return pb.Sink(path=sink.path, format=sink.format, mode=sink.mode, options=options, partition_by=sink.partition_by)


def _no_way_back(file_format: str, data_type: object) -> str:
    if file_format == "csv" and data_type == "binary":
        return "write base64(…) of it, and use unbase64(…) when you read it"
    if file_format == "csv" and isinstance(data_type, dict):
        return "write to_json(…) of it and use from_json(…) when you read it, or write json, parquet or orc"
    if file_format == "json" and has_odd_keys(data_type):
        return "the keys of a map must be strings; cast them"
    return ""
