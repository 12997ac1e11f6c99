"""Archives that users hand in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from onager.errors import PlanningError
from onager.executor import unpacking
from onager.private_process import without_own_variables

MAX_UNPACKED_BYTES: Final = 4 * 1024**3
MAX_UNPACKED: Final = 100_000
"""Files of one archive."""

UNPACKED_WITHIN_S: Final = 300.0
"""How long unpacking one may take."""


def unpack(archive: Path, name: str, folder: Path) -> None:
    """Unpack *archive*, called *name*, into *folder*, in a process of its own whose memory, time and space have limits.

    `PlanningError` for one that is damaged or too large.
    """
    kind = "zip" if name.endswith((".zip", ".jar")) else "tar"
    most = (str(MAX_UNPACKED), str(MAX_UNPACKED_BYTES))
    command = [sys.executable, "-I", unpacking.__file__, str(archive), kind, str(folder), *most]
    try:
        done = subprocess.run(  # noqa: S603 our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=without_own_variables(os.environ),
            timeout=UNPACKED_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PlanningError(f"the archive {name} was not unpacked within {UNPACKED_WITHIN_S:g} s") from None
    if not done.returncode:
        return
    answer = json.loads(done.stdout) if done.returncode == 1 and done.stdout else {}
    if answer.get("errno"):
        raise OSError(answer["errno"], answer["text"], str(archive))
    why = answer.get("refused", f"cannot be unpacked: the process that did it ended with code {done.returncode}")
    raise PlanningError(f"the archive {name} {why}")
