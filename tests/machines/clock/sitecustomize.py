"""A wall clock that is wrong, for the Python process that finds this on its path.

``ONAGER_MACHINES_AHEAD_S`` says by how many seconds it is ahead, or names a file that says so, and may change.
libfaketime would set it for gRPC's C code, too, whose waits ask the kernel by the same clock, and then wait for hours.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.1
_GIVEN = os.environ["ONAGER_MACHINES_AHEAD_S"]
_real_ns = time.time_ns


def _moving(file: Path) -> Callable[[], int]:
    looked_s, ahead_ns = -_LOOK_S, 0

    def now_ahead_ns() -> int:
        nonlocal looked_s, ahead_ns
        if time.monotonic() - looked_s >= _LOOK_S:
            looked_s, ahead_ns = time.monotonic(), int(float(file.read_text()) * 1e9)
        return ahead_ns

    return now_ahead_ns


def _fixed(ahead_ns: int) -> Callable[[], int]:
    return lambda: ahead_ns


_ahead_ns = _moving(Path(_GIVEN)) if os.path.isabs(_GIVEN) else _fixed(int(float(_GIVEN) * 1e9))  # noqa: PTH117


def _time_ns() -> int:
    return _real_ns() + _ahead_ns()


def _time() -> float:
    return _time_ns() / 1e9


time.time_ns, time.time = _time_ns, _time  # noqa: TID251 - replaced, not read
