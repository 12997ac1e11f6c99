"""Moments that users give: how long ago, or a date."""

import time
from datetime import datetime

from onager.cli.audit import LENGTH, seconds
from onager.cli.exits import ExitCode, fail


def moment_ms(name: str, text: str) -> int:
    """Return ``2h`` (that long ago) or ``2026-03-01[T12:30]`` (local, unless it names a zone) since the Unix epoch.

    Empty text is 0. Anything else ends the process with a message about *name*.
    """
    if not text:
        return 0
    if LENGTH.fullmatch(text):
        return max(0, time.time_ns() // 1_000_000 - 1000 * seconds(name, text))
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        fail(
            f"{name} {text!r}: expected a length of time, such as 30m, 1h or 7d, or a date, such as 2026-03-01T12:30",
            ExitCode.USAGE,
        )
