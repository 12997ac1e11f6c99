"""The output that a job's function prints: the first 200 lines are logged, the last 4 KiB go into its failure.

All of it goes to the log of the attempt that calls the function, which keeps the last 256 KiB.
"""

from typing import Final

import structlog

from onager.executor.attempt_logs import LINE_BYTES, current_attempt

MAX_LINES: Final = 200
MAX_CHARACTERS: Final = 500
KEPT_BYTES: Final = 4 * 1024

log = structlog.get_logger()


class Printed:
    """The standard output and standard error of one function."""

    def __init__(self, job_id: str) -> None:
        self._log = log.bind(job_id=job_id)
        self._attempt = current_attempt()
        self._end = b""
        self._line = b""
        self._lines = 0
        self._bytes = 0

    @property
    def end(self) -> str:
        """Return the last 4 KiB."""
        return self._end.decode(errors="replace")

    def take(self, chunk: bytes) -> None:
        """Add the next output."""
        self._bytes += len(chunk)
        self._end = (self._end + chunk)[-KEPT_BYTES:]
        *lines, self._line = (self._line + chunk).split(b"\n")
        for line in lines:
            self._tell(line)
        self._line = self._line[: LINE_BYTES + 1]  # the log cuts it, and says so

    def close(self) -> None:
        """Log the last line, and the total size if lines were left out."""
        if self._line:
            self._tell(self._line)
        if self._lines >= MAX_LINES:
            self._log.info("function_printed_more", total_bytes=self._bytes, lines_shown=MAX_LINES)

    def _tell(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        if self._attempt is not None:
            logs, key = self._attempt
            logs.add(key, text)
        if self._lines < MAX_LINES:
            shown = "".join(c if c.isprintable() or c == "\t" else "·" for c in text[:MAX_CHARACTERS])
            self._log.info("function_printed", line=shown if len(text) <= MAX_CHARACTERS else f"{shown}…")
            self._lines += 1
