"""What the command line says of a script. It imports nothing of PySpark."""

import json
from collections.abc import Sequence
from typing import Any

MAX_BYTES = 256 * 1024
"""The length of a script in UTF-8."""


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
