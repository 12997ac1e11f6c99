"""Private processes: what other processes of the same user cannot read, and what child processes do not inherit."""

import ctypes
import sys
from collections.abc import Mapping
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_OWN: Final = "ONAGER_"
"""The prefix of Onager's own variables: settings of its processes, and credentials of the store."""


def hide_process() -> None:
    """Make Linux refuse other processes of this user access to this one's environment and memory (`prctl(2)`).

    Root still has access. The process leaves no core dump. Child processes are hidden until they execute a program.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def without_own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for a process that runs users' code: without Onager's own variables."""
    return {name: value for name, value in environment.items() if not name.startswith(_OWN)}
