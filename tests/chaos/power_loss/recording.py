"""Records what an executor's parts do to a disk."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("recorder.c")
_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded: the log with the synced contents beside it, and the files as they were in the end."""

    root: Path
    """The directory in which it happened, and where it is tried again."""
    log: Path
    finals: Path

    def content(self, name: str) -> bytes:
        """Return a synced content."""
        return self.log.with_name(f"{self.log.name}.{name}").read_bytes()


def record(base: Path, *, is_short: bool = False) -> Recording:
    """Run the work below *base*, or some of it, while its operations on files are recorded."""
    if shutil.which("gcc") is None:
        raise RuntimeError("gcc is needed to compile the recorder: sudo apt-get install gcc libc6-dev")
    library = base / "recorder.so"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"],
        check=True,
    )
    made = Recording(base / "disk", base / "record", base / "finals")
    made.root.mkdir()
    names = {"LD_PRELOAD": library, "POWER_LOSS_RECORD": made.log, "POWER_LOSS_RECORD_ROOT": made.root}
    command = [sys.executable, "-m", "tests.chaos.power_loss.work", str(made.root), *(["short"] if is_short else [])]
    env = os.environ | {name: str(path) for name, path in names.items()}
    with (base / "work.log").open("wb") as output:
        ended = subprocess.run(
            command, check=False, env=env, stdout=output, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S
        )
    if ended.returncode != 0:
        raise RuntimeError(f"the work that is recorded failed:\n{(base / 'work.log').read_text()[-4000:]}")
    made.root.rename(made.finals)
    return made
