"""Moments that users give: how long ago, or a date."""

import re
import time
from datetime import datetime
from typing import Final

from onager.cli.exits import ExitCode, fail

_LENGTH: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def moment_ms(name: str, text: str) -> int:
    """Return ``2h`` (that long ago) or ``2026-03-01[T12:30]`` (local, unless it names a zone) since the Unix epoch.

    Empty text is 0. Anything else ends the process with a message about *name*.
    """
    if not text:
        return 0
    if found := _LENGTH.fullmatch(text):
        return max(0, time.time_ns() // 1_000_000 - 1000 * int(found[1]) * _SECONDS[found[2]])
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        fail(
            f"{name} {text!r}: expected a length of time, such as 30m, 1h or 7d, or a date, such as 2026-03-01T12:30",
            ExitCode.USAGE,
        )
