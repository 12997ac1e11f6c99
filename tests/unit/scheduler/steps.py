"""Counts what Python does, so that tests see how work grows without looking at a clock."""

import sys
from collections.abc import Callable
from typing import Any


def steps(act: Callable[[], Any]) -> int:
    """Return how many instructions of Python's virtual machine *act* takes, with all that it calls."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count
