"""What a drawn program does: calls of every kind, of which the answers decide what comes next."""

import json
import random  # noqa: TID251 seeded
from collections.abc import Callable
from functools import partial

from onager.protocol import onager_pb2 as pb
from tests.simulation.programs.process import Calls, SparkError

_CAUGHT = 0.7
"""How many calls are made by code that catches their errors."""
_SLOW = "slow"
_STEPS = (
    *("read",) * 2,
    *("query",) * 2,
    *("write",) * 4,
    *("handled", "setting", "view", "once", "once", "thread", "thread", "interrupt", "left", "sleep"),
)


def spec_of(name: str, seed: int) -> pb.JobSpec:
    """Return the program of that *name* as it is submitted."""
    source = json.dumps(["program", name, seed]).encode()
    return pb.JobSpec(name=name, program=pb.ProgramSpec(file_name="app.py", source=source, user="ann"))


def main_of(program: pb.ProgramSpec) -> Callable[[Calls], int]:
    """Return what a process of *program* does; it returns its exit code, or raises `SparkError`."""
    return lambda calls: _Main(program.source.decode(), calls).run()


class _Main:
    """One run: it draws the same each time, and follows the answers."""

    def __init__(self, source: str, calls: Calls) -> None:
        self._rng = random.Random(source)
        self._calls = calls
        self._seen = 0
        """Of all answers until now."""

    def run(self) -> int:
        for _ in range(self._rng.randint(3, 9)):
            step = _STEPS[(self._rng.randrange(1_000) + self._seen) % len(_STEPS)]
            self._seen = (31 * self._seen + getattr(self, f"_{step}")()) % 1_000_003
        return self._rng.choice((0, 0, 0, 0, 3))

    def _tried(self, call: Callable[[], int]) -> int:
        is_caught = self._rng.random() < _CAUGHT
        try:
            return call()
        except SparkError:
            if not is_caught:
                raise
            return 7

    def _read(self) -> int:
        return self._calls.analyze()

    def _query(self) -> int:
        return self._tried(lambda: sum(self._calls.query()))

    def _write(self) -> int:
        self._tried(lambda: len(self._calls.sql("INSERT INTO sales")))
        return 1

    def _handled(self) -> int:
        """Write elsewhere if a statement fails, as it does."""
        try:
            self._calls.sql("FAIL")
        except SparkError:
            return self._write()
        return 2

    def _setting(self) -> int:
        value = str(self._seen)
        self._calls.set("mode", value)
        if (found := self._calls.get("mode")) != value:
            self._calls.complain(f"a setting is {found}, and was set to {value}")
        return 3

    def _view(self) -> int:
        self._calls.sql("VIEW")
        return 4

    def _once(self) -> int:
        reads = self._rng.random() < 0.5
        return self._calls.once(lambda calls: calls.draw() + (calls.analyze() if reads else 0))

    def _thread(self) -> int:
        """Do something beside a thread that reads and writes."""
        join = self._calls.start(partial(_reads_and_writes, self._rng.randint(1, 3)))
        self._write()
        return int(join())

    def _interrupt(self) -> int:
        """Cancel what a thread does."""
        is_write = self._rng.random() < 0.5
        join = self._calls.start(lambda calls: _slow(calls, is_write=is_write))
        self._calls.sleep(self._rng.choice((0.0, 0.1, 1.0)))
        found = self._calls.interrupt(_SLOW)
        return 2 * found + int(join())

    def _left(self) -> int:
        """Leave something running, which may end with the program."""
        self._calls.start(lambda calls: _slow(calls, is_write=False))
        return 5

    def _sleep(self) -> int:
        self._calls.sleep(self._rng.uniform(0, 2))
        return 6


def _reads_and_writes(times: int, calls: Calls) -> None:
    for _ in range(times):
        if calls.analyze() % 2:
            calls.sql("INSERT INTO odd")
        else:
            calls.query()


def _slow(calls: Calls, *, is_write: bool) -> None:
    if is_write:
        calls.sql("INSERT INTO slow", _SLOW)
    else:
        calls.query(_SLOW)
