"""What comes with a script: its values, and whether a text is one. It imports nothing of PySpark."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

MAX_BYTES = 256 * 1024
"""The length of a script in UTF-8."""
_SPACE = re.compile(r"\s*")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_BEGINS = re.compile(r"(?:(?:`(?:[^`]|``)+`|\w+)\s*:\s*)?BEGIN\b", re.IGNORECASE)
_VALUES: dict[str, Callable[[str], Any]] = {
    "": str,
    "string": str,
    "boolean": lambda text: text.lower() == "true",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "decimal": Decimal,
    "date": date.fromisoformat,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), datetime.fromisoformat),
    "null": lambda _: None,
}
"""By the types of values, what makes one of its text."""


def begins_script(text: str) -> bool:
    """Return whether *text* begins as a script does: with BEGIN, behind comments, and perhaps a label."""
    at = 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr] # it always matches
        if text.startswith("--", at):
            at = text.find("\n", at) % (len(text) + 1)
        elif text.startswith("/*", at) and not text.startswith("/*+", at):
            at = _end_of_comment(text, at)
        else:
            return _BEGINS.match(text, at) is not None


def _end_of_comment(text: str, at: int) -> int:
    """Return where the comment ends that begins at *at*; comments nest."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)


def value_of(name: str, kind: str, text: str) -> Any:
    """Return the value that *text* is for :*name*, of Spark's type *kind*; `ValueError` if it is none."""
    make = _VALUES.get(kind.partition("(")[0])
    if make is None:
        known = ", ".join(filter(None, _VALUES))
        raise ValueError(f":{name} of a script cannot be of the type {kind!r}: give one of {known}")
    try:
        return make(text)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"{text!r}, given for :{name}, is no {kind}") from error


def arguments_of(given: Sequence[str]) -> dict[str, Any]:
    """Return what stands for the names in a script; `ValueError` for an argument that is no ``NAME=VALUE``."""
    found: dict[str, Any] = {}
    for each in given:
        name, is_given, value = each.partition("=")
        if not is_given or not name.isidentifier():
            raise ValueError(f"{each!r} is no NAME=VALUE, whose value stands for :NAME in the script")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def check_size(text: str) -> None:
    """Raise `ValueError` for a script that is too long."""
    if (size := len(text.encode())) > MAX_BYTES:
        raise ValueError(f"the script has {size:,} bytes, and may have {MAX_BYTES:,}: split it into several")
