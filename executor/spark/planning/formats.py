"""Options of the formats in which views are read and results are written: which there are, and which a result has."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from onager.errors import PlanningError
from onager.executor.exchange import has_odd_keys
from onager.executor.spark.jvm import Jvm
from onager.protocol import onager_pb2 as pb

_SPARK = "org.apache.spark.sql."
_LISTED: Final = {
    "csv": f"{_SPARK}catalyst.csv.CSVOptions",
    "json": f"{_SPARK}catalyst.json.JSONOptions",
    "orc": f"{_SPARK}execution.datasources.orc.OrcOptions",
    "parquet": f"{_SPARK}execution.datasources.parquet.ParquetOptions",
    "text": f"{_SPARK}execution.datasources.text.TextOptions",
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
}  # fmt: skip
_WRITING_ALONE: Final = {
    "csv": frozenset({"codec", "compression", "escapequotes", "quoteall"}),
    "json": frozenset({"compression", "ignorenullfields", "pretty", "sortkeys", "writenonasciicharacterascodepoint"}),
    "orc": frozenset({"compression", "orc.compress"}),
    "parquet": frozenset({"compression", "parquet.compression"}),
    "text": frozenset({"compression"}),
}
_OF_HADOOP: Final = ("fs.", "mapreduce.", "hadoop.")
"""How settings begin that file systems and the libraries of formats read; theirs begin with the format's name, too."""
_SAME: Final = {"charset": "encoding", "codec": "compression", "delimiter": "sep"}
"""Options with two names."""

_MOMENTS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own formats leave out microseconds, and the seconds of old time zones."""
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
}
"""Options of a result that is written with ``--output``, unless it is given others: RFC 4180, and nothing is lost."""
NULL_OF_ONE_COLUMN: Final = "\\N"
"""Null in a CSV file of one column, whose readers pass over empty lines."""


def merged(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return *given* options and those of *defaults* that it does not say, under any of their names."""
    said = {_canonical(key) for key in given}
    return {key: value for key, value in defaults.items() if _canonical(key) not in said} | dict(given)


def says(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option called *name* is among *options*."""
    return any(_canonical(key) == _canonical(name) for key in options)


def _canonical(key: str) -> str:
    return _SAME.get(key.lower(), key.lower())


def check_options(jvm: Jvm, file_format: str, options: Mapping[str, str], whose: str, *, is_written: bool) -> None:
    """Raise `PlanningError` for the first option that nobody reads when files of *file_format* are read, or written."""
    wrong = _WRITING_ALONE if not is_written else _READING_ALONE
    names = _names(jvm, _LISTED[file_format]) + ([] if is_written else _names(jvm, _OF_FILES))
    known = {name.lower(): name for name in names if name.lower() not in wrong[file_format]}
    if not is_written:
        known |= {name: name for name in _READING_FILES}
    for key in options:
        name = key.lower()
        if name in known or name.startswith((*_OF_HADOOP, f"{file_format}.")):
            continue
        raise PlanningError(
            f"{whose}: nobody reads the option {key} when {file_format} is {'written' if is_written else 'read'}"
            f"{_advice(name, known, wrong[file_format], is_written=is_written)}"
        )


def _advice(name: str, known: Mapping[str, str], wrong: frozenset[str], *, is_written: bool) -> str:
    if name == "partitionby":
        return ": a result is written without partitions of directories; leave it out"
    if name in {"maxrecordsperfile", "bucketby", "sortby"}:
        return ": a file is written for each partition of the result; REPARTITION(n) in the query says how many"
    if name == "path":
        return ": the path is given by itself"
    if name in wrong:
        return f"; it is one for {'reading (--view-option)' if is_written else 'writing (--output-option)'}"
    if meant := get_close_matches(name, known, n=1):
        return f": is {known[meant[0]]} meant?"
    return f"; there are {', '.join(sorted(known.values(), key=str.lower))}"


def _names(jvm: Jvm, listed: str) -> list[str]:
    return str(jvm.java_class(listed).getAllOptions().mkString(",")).split(",")


def completed(sink: pb.Sink, schema_json: str) -> pb.Sink:
    """Return *sink* with the options under which all of a result of this schema can be read again.

    Raises `PlanningError` for columns that the format has no way back for.
    """
    fields = json.loads(schema_json)["fields"]
    for field in fields:
        why = _no_way_back(sink.format, field["type"])
        if why:
            raise PlanningError(f"column {field['name']} cannot be written as {sink.format} and read again: {why}")
    options = merged(WRITTEN_WITH.get(sink.format, {}), sink.options)
    if sink.format == "csv" and len(fields) == 1 and not says(options, "nullValue"):
        options["nullValue"] = NULL_OF_ONE_COLUMN
    return pb.Sink(path=sink.path, format=sink.format, mode=sink.mode, options=options)


def _no_way_back(file_format: str, data_type: object) -> str:
    if file_format == "csv" and data_type == "binary":
        return "give base64(…) of it, and unbase64(…) when it is read"
    if file_format == "csv" and isinstance(data_type, dict):
        return "give to_json(…) of it, and from_json(…) when it is read, or write json, parquet or orc"
    if file_format == "json" and has_odd_keys(data_type):
        return "the keys of a map have to be strings; cast them"
    return ""
