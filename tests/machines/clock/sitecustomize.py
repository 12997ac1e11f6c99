"""A wall clock that is wrong, for the Python process that finds this on its path.

libfaketime would set it for gRPC's C code, too, whose waits ask the kernel by the same clock, and then wait for hours.
"""

import os
import time

_AHEAD_NS = int(float(os.environ["ONAGER_MACHINES_AHEAD_S"]) * 1e9)
_real_ns = time.time_ns


def _time_ns() -> int:
    return _real_ns() + _AHEAD_NS


def _time() -> float:
    return _time_ns() / 1e9


time.time_ns, time.time = _time_ns, _time  # noqa: TID251 - replaced, not read
