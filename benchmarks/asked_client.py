"""A program in a process of its own, which is asked by lines of text and answers with lines of JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

_ROOT: Final = Path(__file__).resolve().parents[1]
_LAST_WORDS_CHARS: Final = 2_000


class AskedClient:
    """``python -m MODULE ARGUMENTS``; a context manager that kills it. What it has to say besides goes into *log*."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        with log.open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                cwd=_ROOT,
            )
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def ask(self, line: str) -> dict[str, Any]:
        """Give it a line, and return what it says next."""
        self.say(line)
        return self.read_answer()

    def say(self, line: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read_answer(self) -> dict[str, Any]:
        """Return what it says next; `RuntimeError` when it has ended."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return dict(json.loads(line))
        last = self._log.read_text(errors="replace")[-_LAST_WORDS_CHARS:]
        raise RuntimeError(f"the client ended with code {self._process.wait()}:\n{last}")
