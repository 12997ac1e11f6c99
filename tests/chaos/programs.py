"""``python -m tests.chaos.programs [--kills 200] [--seed N] [--backend leveldb|etcd] [--days D] [--json FILE]``.

A real cluster: one scheduler on LevelDB, or three on etcd, and two executors. Programs of PySpark
(`tests.chaos.killed_program`) run one after the other, until as many processes were killed as wanted. The seed draws
under which call, and what, in equal shares:

| kind | what is killed |
|---|---|
| process | the program's own process |
| executor | the executor with its JVM, or in half of the cases the process beside it that runs programs |
| jvm | the JVM of an executor |
| scheduler | a scheduler |
| all schedulers | all of them at once |
| stopped | nothing: what runs the program is stopped, in half of the cases with the program, and wakes up later |

Some of the kills strike while the program does again what was done before. Of each program must hold: it ends with 0;
its output is that of the first program, which nothing disturbs, but for lines of lost attempts that come twice; each
row is there once; it has made the same calls, and each job of a call was done once; and the program's process ended
with what ran it. Exit code 1 when something else happened.

With ``--days``, the wall clock of schedulers and executors moves on by so many days under each program, after half of
its kills: what is kept for some days is gone then, unless a program that runs needs it. Pauses are not measured then.

Each kill's pause is the time to the next call that is recorded; what lies before the beginning of the next attempt, if
there is one, is `beyond_s`.
"""

import argparse
import contextlib
import itertools
import json
import random  # noqa: TID251 seeded
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.connect_cluster import Jobs
from onager.client.program import ProgramCall, ProgramHandle
from onager.errors import OnagerError
from tests.chaos.program_kills import ALL, KINDS, PROCESS, STOPPED, Killer
from tests.chaos.victims import EXECUTOR, SCHEDULER, Victims, one, three

PROGRAM: Final = Path(__file__).with_name("killed_program.py")
LIMITS_S: Final = {PROCESS: 2.0, SCHEDULER: 1.0, EXECUTOR: 4.0, ALL: 5.0}
"""What a pause may take beyond what is done again, on a machine that has nothing else to do."""
_NEW_ATTEMPT: Final = frozenset({PROCESS, EXECUTOR, STOPPED})
_A_PROGRAM: Final = 10
"""Kills under one program, besides those that strike while it does again what was done."""
_AGAIN: Final = 0.5
"""How often a kill that begins an attempt is followed by one under what that does again."""
_AGAIN_S: Final = 1.0
_STRIKE_S: Final = 3.0
"""How long what is to be killed is waited for: between two attempts there is no process of the program."""
_PATIENCE_S: Final = 300.0
_LOOK_S: Final = 0.05
_CLOCK: Final = Path(__file__).parents[1] / "machines" / "clock"
_ROWS: Final = {
    "SELECT id, count(*) FROM {}.notes GROUP BY id ORDER BY id": [
        (n, 1) for n in (0, *(100 * k + n for k in range(1, 5) for n in range(8)), 900, 904, 908)
    ],
    "SELECT n, day FROM {}.days ORDER BY day": [(1, 1), (6, 2)],
    "SELECT count(DISTINCT what) FROM {}.notes": [(34,)],
}
_SETTINGS: Final = {"ONAGER_EXECUTOR_PROGRAM_SLOTS": "4", "ONAGER_SCHEDULER_LOG_LEVEL": "info"}


@dataclass(slots=True)
class Kill:
    """A process that was killed, or stopped, and what came of it."""

    program: int
    kind: str
    what: str
    at_ms: int
    done_ms: int
    is_alone: bool
    """Whether there was no other executor on which the program could go on."""
    is_again: bool = False
    """Whether the program was doing again what was done before."""
    is_after_stop: bool = False
    """Whether the program's first session had ended."""
    pause_s: float | None = None
    """Time to the next new call; None if another kill came before it, or there was no further call."""
    beyond_s: float | None = None
    """Time to the next attempt where there is one, else as *pause_s*."""


@dataclass(slots=True)
class Tally:
    """What was done, and what was wrong."""

    has_one_scheduler: bool
    programs: int = 0
    kills: list[Kill] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    """Between the calls of the first program, which nothing disturbs."""

    def as_json(self) -> dict[str, Any]:
        """Return everything, and what it comes to."""
        return {
            "programs": self.programs,
            "killed": Counter(kill.kind for kill in self.kills),
            "again": sum(kill.is_again for kill in self.kills),
            "after_stop": sum(kill.is_after_stop for kill in self.kills),
            "longest_gap_s": max(self.gaps_s, default=0.0),
            "pauses": {kind: _pauses(kind, self.kills, self._limit_s(kind)) for kind in KINDS},
            "trouble": self.trouble,
        }

    def _limit_s(self, kind: str) -> float | None:
        return LIMITS_S.get(ALL if kind == SCHEDULER and self.has_one_scheduler else kind)


def _pauses(kind: str, kills: Sequence[Kill], limit_s: float | None) -> dict[str, Any]:
    of_kind = [kill for kill in kills if kill.kind == kind and not kill.is_alone]
    whole = [kill.pause_s for kill in of_kind if kill.pause_s is not None]
    beyond = [kill.beyond_s for kill in of_kind if kill.beyond_s is not None]
    return {
        "n": len(whole),
        "p50_s": round(statistics.median(whole), 2) if whole else None,
        "max_s": round(max(whole), 2) if whole else None,
        "beyond_p50_s": round(statistics.median(beyond), 2) if beyond else None,
        "beyond_max_s": round(max(beyond), 2) if beyond else None,
        "over_limit": None if limit_s is None else sum(each > limit_s for each in beyond),
    }


class Watched:
    """A program, and how far it is; looks at it again and again."""

    def __init__(self, handle: ProgramHandle) -> None:
        self._handle = handle
        self._calls = self._attempt = 0
        self.began_ms: dict[int, int] = {}
        """When each attempt began, by its number."""
        self._has_ended = False
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._has_ended:
            with contextlib.suppress(OnagerError):
                info = self._handle.info()
                self.began_ms[info.attempt] = info.attempt_ms
                self._calls, self._attempt = info.calls, info.attempt
            with contextlib.suppress(OnagerError):
                self._has_ended = self._handle.job.progress().state.is_final
            time.sleep(_LOOK_S)

    def wait_for(self, calls: int = 0, attempt: int = 0) -> bool:
        """Return once so many *calls* are recorded, in that *attempt* or later; false if it has ended before."""
        until_s = time.monotonic() + _PATIENCE_S
        while not self._has_ended and time.monotonic() < until_s:
            if self._calls >= calls and self._attempt >= attempt:
                return True
            time.sleep(_LOOK_S)
        return False

    @property
    def attempt(self) -> int:
        """Return the attempt that counts, as last seen."""
        return self._attempt


class Clock:
    """The wall clock of the cluster, which moves on."""

    def __init__(self, days: float, directory: Path) -> None:
        self.days = days
        self._ahead_s = 0.0
        self._file = directory / "ahead"
        self._file.write_text("0")

    @property
    def settings(self) -> dict[str, str]:
        """The environment of processes that have it."""
        path = {"PYTHONPATH": str(_CLOCK), "ONAGER_MACHINES_AHEAD_S": str(self._file)}
        return path if self.days else {}

    def move(self) -> None:
        """Move it on."""
        self._ahead_s += self.days * 86_400
        whole = self._file.with_suffix(".new")
        whole.write_text(str(self._ahead_s))
        whole.replace(self._file)


class Chaos:
    """Programs on a cluster, under which processes are killed."""

    def __init__(self, cluster: Victims, seed: int, stopped_s: float, tally: Tally, clock: "Clock") -> None:
        self._cluster = cluster
        self._clock = clock
        self._rng = random.Random(seed)
        self._killer = Killer(cluster, self._rng, stopped_s)
        self._tally = tally
        self._jobs = Jobs(cluster.client)
        self._lines: list[str] = []
        self._calls: list[tuple[str, int, str, str]] = []

    def run(self, kills: int) -> None:
        """Run a program, with so many *kills*, and some more."""
        self._tally.programs += 1
        number = self._tally.programs
        database = f"killed{number}"
        handle = self._cluster.client.run(PROGRAM, args=[database], program_id=f"killed-{number}")
        watched, mine = Watched(handle), list[Kill]()
        for turn, due in enumerate(sorted(self._rng.randrange(len(self._calls)) for _ in range(kills))):
            if turn == kills // 2:
                self._clock.move()
            if not (watched.wait_for(due) and self._strike(mine)):
                continue
            attempt = watched.attempt
            if mine[-1].kind in _NEW_ATTEMPT and self._rng.random() < _AGAIN and watched.wait_for(attempt=attempt + 1):
                time.sleep(self._rng.uniform(0.0, _AGAIN_S))
                self._strike(mine)
        self._tally.kills += mine
        self._tally.trouble += [f"{handle.id}: {each}" for each in [*self._wrong(handle, mine), *self._killer.trouble]]
        self._killer.trouble.clear()
        if not self._clock.days:
            self._measure(handle, watched, mine)
        self._cluster.client.sql(f"DROP DATABASE IF EXISTS {database} CASCADE").wait(_PATIENCE_S)
        for kill in mine:
            print(
                f"{kill.program:4} {kill.kind:14} {kill.what:44} {'again' if kill.is_again else '':5} "
                f"{'alone' if kill.is_alone else '':5} pause {kill.pause_s} s, {kill.beyond_s} s",
                flush=True,
            )

    def _strike(self, mine: list[Kill]) -> bool:
        until_s = time.monotonic() + _STRIKE_S
        while (struck := self._killer.strike()) is None:
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_S)
        mine.append(Kill(self._tally.programs, struck.kind, struck.what, struck.at_ms, struck.done_ms, struck.is_alone))
        return True

    # ---------------------------------------------------------------- what came of it

    def _wrong(self, handle: ProgramHandle, kills: list[Kill]) -> list[str]:
        """Return what is wrong with a program once it has ended."""
        try:
            code = handle.wait(_PATIENCE_S)
        except (OnagerError, TimeoutError) as error:
            return [f"it has not ended by itself: {error}"]
        printed = list(handle.output())
        errors = b"".join(each.text for each in printed if each.is_error).decode()
        lines = b"".join(each.text for each in printed if not each.is_error).decode().splitlines()
        if code:
            return [f"it ended with {code}: {errors[-2000:]}"]
        once = list(dict.fromkeys(lines))
        calls = list(handle.calls())
        named = sorted((call.task, call.number, call.kind, call.line) for call in calls)
        if not self._lines:
            self._lines, self._calls = once, named
        wrong = [] if once == self._lines else [f"it has printed {lines}, not {self._lines}"]
        if len(lines) - len(once) > 3 * (len(kills) + 1):
            wrong.append(f"{len(lines) - len(once)} lines came twice")
        if named != self._calls:
            wrong.append(f"its calls differ: {sorted(set(named) ^ set(self._calls))}")
        wrong += [f"call {call.task}/{call.number} at {call.line} has no outcome" for call in calls if not call.done]
        for text, rows in _ROWS.items():
            table = self._cluster.client.sql(text.format(handle.id.replace("-", ""))).to_arrow()
            if (got := [tuple(row.values()) for row in table.to_pylist()]) != rows:
                wrong.append(f"{text} gives {got}, not {rows}")
        return wrong + self._jobs.look()

    def _measure(self, handle: ProgramHandle, watched: Watched, kills: list[Kill]) -> None:
        """Note how long each kill held the program up."""
        calls: list[ProgramCall] = sorted(handle.calls(), key=lambda call: call.at_ms)
        if not kills:
            times = [call.at_ms for call in calls]
            self._tally.gaps_s += [(b - a) / 1000 for a, b in itertools.pairwise(times)]
        stop = PROGRAM.read_text().splitlines().index("spark.stop()") + 1
        for kill, after in zip(kills, (*kills[1:], None), strict=False):
            before = [call for call in calls if call.at_ms <= kill.at_ms]
            kill.is_after_stop = any(int(call.line.rpartition(":")[2] or 0) >= stop for call in before)
            attempt = max((n for n, at_ms in watched.began_ms.items() if at_ms <= kill.at_ms), default=1)
            kill.is_again = attempt > 1 and not any(call.attempt == attempt for call in before)
            onward = next((call.at_ms for call in calls if call.at_ms > kill.done_ms), None)
            if onward is None or (after is not None and after.at_ms < onward):
                continue
            kill.pause_s = kill.beyond_s = (onward - kill.at_ms) / 1000
            if kill.kind in _NEW_ATTEMPT:
                begins = [at_ms for at_ms in watched.began_ms.values() if kill.at_ms < at_ms <= onward]
                kill.beyond_s = (min(begins) - kill.at_ms) / 1000 if begins else 0.0


def run(kills: int, seed: int, backend: str, directory: Path, stopped_s: float, days: float) -> Tally:
    """Run programs until *kills* processes were killed, or something is wrong."""
    tally, clock = Tally(has_one_scheduler=backend != "etcd"), Clock(days, directory)
    with (three if backend == "etcd" else one)(directory / "cluster", _SETTINGS | clock.settings) as cluster:
        chaos = Chaos(cluster, seed, stopped_s, tally, clock)
        chaos.run(0)
        while len(tally.kills) < kills and not tally.trouble:
            chaos.run(_A_PROGRAM)
            print(json.dumps(tally.as_json()), flush=True)
    return tally


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=("leveldb", "etcd"), default="leveldb")
    parser.add_argument("--stopped-s", type=float, default=60.0, help="how long what is stopped sleeps")
    parser.add_argument("--days", type=float, default=0.0, help="by how many the clock moves on under each program")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="onager-killed-"))
    tally = run(arguments.kills, arguments.seed, arguments.backend, directory, arguments.stopped_s, arguments.days)
    named = {"seed": arguments.seed, "backend": arguments.backend, "days": arguments.days}
    counts = {**named, **tally.as_json()}
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({**counts, "kills": [asdict(kill) for kill in tally.kills]}, indent=1))
    print(json.dumps(counts))
    if tally.trouble:
        print(f"logs and data: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
