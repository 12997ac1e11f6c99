"""Release 0.1, as processes: its code out of git, run by this environment, which has all that it needs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.processes.children import start
from tests.support.waiting import HANGS_S

ROOT: Final = Path(__file__).resolve().parents[3]
COMMIT: Final = "0cb155a65757c7b046670a64a9fd0182fa264033"
"""The last commit with stores of schema 1 and protocol 1."""
VERSION: Final = "0.1.0"


class EarlierRelease:
    """The code of release 0.1 in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        """Check it out; *directory* is empty or new."""
        command = ["git", "-C", str(ROOT), "archive", "--format=tar", COMMIT]
        archive = subprocess.run(command, capture_output=True, check=False)
        assert archive.returncode == 0, (
            f"commit {COMMIT} is not in this clone ({archive.stderr.decode().strip()}): git fetch --unshallow gets it"
        )
        directory.mkdir(exist_ok=True)
        subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
        self._directory = directory
        # The directory comes before the installed release, in which a child would find the new one.
        self._environment = {**os.environ, "PYTHONPATH": str(directory)}
        found = self.run("--version").stdout.split()
        assert found == ["onager", VERSION], found

    def start(self, log: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start its `onager` with *arguments*, its output in *log*."""
        command = [sys.executable, "-m", "onager", *arguments]
        return start(command, log, {**self._environment, **environment}, cwd=self._directory)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its `onager` with *arguments* to the end."""
        command = [sys.executable, "-m", "onager", *arguments]
        return subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
