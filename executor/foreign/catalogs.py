"""Catalogs besides Onager's own, as `--catalog` names them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from onager.errors import InvalidSettingError

FLAG: Final = "--catalog"
_FORM: Final = "NAME=iceberg:URI?PROPERTY=VALUE&…"
_NAME: Final = re.compile(r"[a-z]\w*", re.ASCII)
_TAKEN: Final = frozenset(
    {
        *("spark_catalog", "system", "session", "builtin", "global_temp", "default"),
        *("avro", "binaryfile", "csv", "delta", "json", "orc", "parquet", "text", "xml"),
    }
)
"""Names that mean something else to Spark, such as the formats in ``FROM csv.`path` ``."""


@dataclass(frozen=True, slots=True)
class ForeignCatalog:
    """A catalog whose tables are named ``NAME.namespace.table``."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """PyIceberg's, on top of what its own configuration says of that name."""


def parse_catalog(text: str) -> ForeignCatalog:
    """Return the catalog that *text* names; `InvalidSettingError` for what names none."""
    name, equals, rest = text.partition("=")
    kind, colon, where = rest.partition(":")
    if not equals or kind != "iceberg":
        raise InvalidSettingError(FLAG, text, f"give {_FORM}, or NAME=iceberg for what PyIceberg is configured to use")
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise InvalidSettingError(
            FLAG, text, f"{name!r} cannot be a catalog's name: give lower-case letters, digits and _, and no format"
        )
    if not colon:
        return ForeignCatalog(name)
    uri, _, query = where.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise InvalidSettingError(FLAG, text, f"the properties after ? are not PROPERTY=VALUE&…: {error}") from error
    if not uri:
        raise InvalidSettingError(FLAG, text, f"there is no URI after iceberg: — give {_FORM}")
    return ForeignCatalog(name, {"uri": uri, **dict(pairs)})


def parse_catalogs(texts: Sequence[str]) -> tuple[ForeignCatalog, ...]:
    """Return the catalogs that *texts* name; `InvalidSettingError` also for a name that comes twice."""
    found: dict[str, ForeignCatalog] = {}
    for text in texts:
        catalog = parse_catalog(text)
        if catalog.name in found:
            raise InvalidSettingError(FLAG, text, f"the catalog {catalog.name} is given twice")
        found[catalog.name] = catalog
    return tuple(found.values())
