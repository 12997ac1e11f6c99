"""Processes without the right to look into others of their user, whoever runs the tests."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tests.support.waiting import HANGS_S

_DROP: Final = """
import ctypes, os, sys
for capability in (19, 21, 38):  # CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON: other users have none of them
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.argv[1], sys.argv[1:])
"""
_READ: Final = """
import sys
from tests.support.waiting import HANGS_S
for name in ("environ", "maps", "mem"):
    try:
        with open(f"/proc/{sys.argv[1]}/{name}", "rb") as file:
            file.read(0 if name == "mem" else -1)
        print(name)
    except PermissionError:
        pass
"""


def ordinary(*command: str) -> list[str]:
    """Return the command of a Python process with the arguments *command*; root in it is like any other user."""
    return [sys.executable, "-c", _DROP, sys.executable, *command]


def read_by_others(pid: int) -> Sequence[str]:
    """Return which files of a process's memory and environment an ordinary process of the same user can read."""
    done = subprocess.run(ordinary("-c", _READ, str(pid)), capture_output=True, text=True, check=True, timeout=HANGS_S)
    return done.stdout.split()
