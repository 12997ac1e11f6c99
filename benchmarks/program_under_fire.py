"""A program of PySpark whose processes are killed while it runs: the end of ``make demo``."""

import sys
from pathlib import Path
from typing import Final

import psutil

import onager

PROGRAM: Final = Path(__file__).resolve().parents[1] / "examples" / "program.py"
_ROUNDS: Final = 6
_KILLED_AFTER: Final = {
    "round 1 is written\n": ("onager.programs.__main__", "the program's process"),
    "round 3 is written\n": ("onager.executor.programs", "the process of the executor that runs programs"),
}
"""After this was printed, the process with this in its command is killed."""


def run(client: onager.OnagerClient, standalone_pid: int) -> None:
    """Hand a program in, show what it prints, and kill what runs it; `SystemExit` unless all rows are there once."""
    program = client.run(PROGRAM, args=[str(_ROUNDS)])
    print(f"demo: onager run examples/{PROGRAM.name} {_ROUNDS}: program {program.id}", flush=True)
    left = dict(_KILLED_AFTER)
    seen = b""
    for printed in program.output(follow=True):
        stream = sys.stderr if printed.is_error else sys.stdout
        stream.buffer.write(printed.text)
        stream.flush()
        seen += b"" if printed.is_error else printed.text
        for line in [line for line in left if line.encode() in seen]:
            _kill(standalone_pid, *left.pop(line))
    code, info = program.wait(), program.info()
    rows = f"{_ROUNDS * 1000} rows, {_ROUNDS * 1000} different ones"
    if code or left or rows.encode() not in seen:
        sys.exit(f"demo: the program ended with exit code {code}, and has not found {rows}")
    print(f"demo: it ended in attempt {info.attempt}, after {info.calls} calls: each was carried out once", flush=True)


def _kill(standalone_pid: int, command: str, name: str) -> None:
    for process in psutil.Process(standalone_pid).children(recursive=True):
        if command in " ".join(process.cmdline()):
            print(f"demo: kill -9 {name}", flush=True)
            process.kill()
            return
