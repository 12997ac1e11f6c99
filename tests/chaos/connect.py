"""``python -m tests.chaos.connect [--sessions 200] [--clients 20] [--minutes 10] [--seed 1] [--json FILE]``.

Sessions of Spark Connect under faults: three members of etcd, three schedulers behind HAProxy, two executors, and
unmodified clients, each a process of its own (`tests.chaos.connect_client`), that keep several sessions each and
compare all they get. What is killed and paused, and when, is drawn from the seed. Exit code 1 when a request failed or
was answered wrongly, a task had other than one success, a process ended by itself, or the memory of a scheduler grew.
"""

import argparse
import json
import os
import random  # noqa: TID251 seeded
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.connect_cluster import ConnectCluster, Jobs
from tests.chaos.oracles import MEMORY_LIMIT_BYTES, Verdict

ROOT: Final = Path(__file__).resolve().parents[2]
_KINDS: Final = ("scheduler", "executor", "JVM", "pause of scheduler", "member of etcd", "all schedulers")
_WEIGHTS: Final = (6, 4, 3, 2, 2, 1)
_EVERY_S: Final = (5.0, 15.0)
_PAUSE_S: Final = 4.0
_DOWN_S: Final = 1.0
_SPARED_AFTER: Final = 0.3
"""From this part of the run on nothing kills the last scheduler, so that its memory can be watched."""
_SAMPLE_S: Final = 5.0
_END_S: Final = 240.0
"""How much longer than the run a client may take to end its sessions."""
_GROWTH: Final = 1.25
_GROWTH_BYTES: Final = 20 << 20
"""A scheduler that has grown by less, from the first quarter of its longest life to the last, has not grown."""
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done so long after the start."""

    at_s: float
    kind: str
    lot: int


def schedule(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of a run."""
    rng = random.Random(seed)
    faults, at_s = [], rng.uniform(*_EVERY_S)
    while at_s < seconds:
        faults.append(Fault(round(at_s, 2), rng.choices(_KINDS, _WEIGHTS)[0], rng.randrange(1_000)))
        at_s += rng.uniform(*_EVERY_S)
    return faults


class Injector(threading.Thread):
    """Does what is due, and repairs it."""

    def __init__(self, cluster: ConnectCluster, faults: Sequence[Fault], seconds: float) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._faults = faults
        self._spared_s = seconds * _SPARED_AFTER
        self.done: list[dict[str, Any]] = []
        self.trouble = ""

    def run(self) -> None:
        began_s = time.monotonic()
        try:
            for fault in self._faults:
                time.sleep(max(0.0, began_s + fault.at_s - time.monotonic()))
                self.done.append({"at_s": fault.at_s, "kind": fault.kind, "on": self._strike(fault)})
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            raise

    def _strike(self, fault: Fault) -> list[str]:
        cluster, is_spared = self._cluster, fault.at_s > self._spared_s
        schedulers = cluster.schedulers[:-1] if is_spared else cluster.schedulers
        names = {
            "all schedulers": schedulers,
            "executor": [cluster.executors[fault.lot % len(cluster.executors)]],
            "JVM": [cluster.executors[fault.lot % len(cluster.executors)]],
            "member of etcd": [f"etcd-{1 + fault.lot % 3}"],
        }.get(fault.kind, [schedulers[fault.lot % len(schedulers)]])
        if fault.kind == "JVM":
            cluster.kill_jvm(names[0])
        elif fault.kind == "pause of scheduler":
            part = cluster.local.parts[names[0]]
            part.send(signal.SIGSTOP)
            time.sleep(_PAUSE_S)
            part.send(signal.SIGCONT)
        else:
            cluster.kill(*names)
            time.sleep(_DOWN_S)
            cluster.start(*names)
        return names


class Memory(threading.Thread):
    """Looks at how much memory schedulers have, by life."""

    def __init__(self, cluster: ConnectCluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._ended = threading.Event()
        self.samples: dict[tuple[str, int], list[tuple[float, int]]] = {}

    def run(self) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(_SAMPLE_S):
            for part in self._cluster.local.named("scheduler"):
                try:
                    rss = psutil.Process(part.pid).memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                mine = self.samples.setdefault((part.name, part.pid), [])
                mine.append((round(time.monotonic() - began_s, 1), rss))

    def end(self) -> None:
        self._ended.set()
        self.join()

    def verdict(self) -> Verdict:
        """No scheduler has too much, and the one that lived longest has not grown."""
        verdict = Verdict("memory of schedulers is flat")
        for (name, _), samples in self.samples.items():
            most = max(rss for _, rss in samples)
            if most > MEMORY_LIMIT_BYTES:
                verdict.findings.append(f"{name} took {most >> 20} MiB")
        (name, _), longest = max(self.samples.items(), key=lambda item: len(item[1]))
        quarter = max(1, len(longest) // 4)
        early = statistics.median(rss for _, rss in longest[quarter : 2 * quarter] or longest)
        late = statistics.median(rss for _, rss in longest[-quarter:])
        lived_s = longest[-1][0] - longest[0][0]
        reported = (
            f"{name}, over {lived_s:.0f} s: {int(early) >> 20} MiB in the second quarter, {int(late) >> 20} in the last"
        )
        has_grown = late > early * _GROWTH and late > early + _GROWTH_BYTES
        (verdict.findings if has_grown else verdict.notes).append(reported)
        return verdict

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"scheduler": name, "pid": pid, "rss_mib": [(at_s, rss >> 20) for at_s, rss in samples]}
            for (name, pid), samples in self.samples.items()
        ]


@dataclass(slots=True)
class Clients:
    """The processes of the clients, and what they reported."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def start(self, options: argparse.Namespace, remote: str, directory: Path) -> None:
        share, more = divmod(options.sessions, options.clients)
        for number in range(options.clients):
            mine = share + (number < more)
            arguments = [
                remote,
                f"{options.seed}-{number}",
                str(mine),
                str(options.minutes * 60),
                str(directory / "data"),
            ]
            out = directory / f"client-{number}.jsonl"
            with out.open("wb") as reported, out.with_suffix(".log").open("wb") as log:
                command = [sys.executable, "-m", "tests.chaos.connect_client", *arguments]
                self.processes.append(subprocess.Popen(command, cwd=ROOT, stdout=reported, stderr=log))
            self.files.append(out)

    def wait(self, until_s: float) -> Verdict:
        """Wait for all of them."""
        verdict = Verdict("every client came to its end")
        for process, out in zip(self.processes, self.files, strict=True):
            try:
                code = process.wait(max(1.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                last = out.read_text().splitlines()[-1:]
                verdict.findings.append(f"{out.stem} did not end; it waited for {last}")
                continue
            if code:
                log = out.with_suffix(".log").read_text(errors="replace")[-500:].strip()
                verdict.findings.append(f"{out.stem} ended with code {code}: {log}")
        return verdict

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def reported(self) -> list[dict[str, Any]]:
        """Return each request that was answered."""
        lines = [json.loads(line) for out in self.files for line in out.read_text().splitlines()]
        return [line for line in lines if "request" in line]


def answers_right(reported: Sequence[dict[str, Any]]) -> Verdict:
    """Every request was answered, and as it had to be."""
    verdict = Verdict("every request was answered rightly")
    verdict.findings = [f"{t['session']} {t['request']}: {t['trouble']}" for t in reported if t["trouble"]]
    sessions = {line["session"] for line in reported}
    verdict.notes.append(f"{len(reported)} requests of {len(sessions)} sessions")
    return verdict


def main() -> int:
    options = _options()
    directory = Path(tempfile.mkdtemp(prefix="onager-chaos-connect-"))
    (directory / "data").mkdir()
    seconds = options.minutes * 60
    clients = Clients()
    try:
        with ConnectCluster(directory) as cluster, cluster.client() as admin:
            jobs, memory = Jobs(admin), Memory(cluster)
            injector = Injector(cluster, schedule(options.seed, seconds), seconds)
            memory.start()
            clients.start(options, cluster.remote, directory)
            injector.start()
            ends_s = time.monotonic() + seconds
            not_once = Verdict("every task succeeded once")
            while time.monotonic() < ends_s:
                time.sleep(min(10.0, max(0.0, ends_s - time.monotonic())))
                not_once.findings += jobs.look()
                print(f"{seconds - ends_s + time.monotonic():5.0f} s  {len(injector.done)} faults, "
                      f"{len(clients.reported())} answers, {len(jobs.seen)} jobs", flush=True)  # fmt: skip
            injector.join()
            ended = clients.wait(ends_s + _END_S)
            not_once.findings += jobs.look()
            memory.end()
            dead = [part.name for part in cluster.local.newly_dead()]
    finally:
        clients.kill()
    reported = clients.reported()
    processes = Verdict("no process ended by itself", [f"{name} is dead" for name in dead])
    if injector.trouble:
        processes.findings.append(f"a fault could not be injected or repaired: {injector.trouble}")
    verdicts = [answers_right(reported), ended, not_once, memory.verdict(), processes]
    _report(options, injector.done, reported, memory, verdicts)
    if not all(verdict.is_clean for verdict in verdicts):
        print(f"\nNOT CLEAN. Logs and data: {directory}")
        return 1
    shutil.rmtree(directory)
    print(f"\nall clean (seed {options.seed})")
    return 0


def _report(
    options: argparse.Namespace,
    faults: Sequence[dict[str, Any]],
    reported: Sequence[dict[str, Any]],
    memory: Memory,
    verdicts: Sequence[Verdict],
) -> None:
    counts = Counter(fault["kind"] for fault in faults)
    print(f"\n{len(faults)} faults: {dict(counts)}")
    seconds: dict[str, list[float]] = {}
    for line in reported:
        seconds.setdefault(line["request"], []).append(line["seconds"])
    taken = {
        what: {"n": len(mine), "p50_s": statistics.median(mine), "max_s": max(mine)} for what, mine in seconds.items()
    }
    for what, row in taken.items():
        print(f"{what:10} " + " ".join(f"{name}={value}" for name, value in row.items()))
    for verdict in verdicts:
        print(f"{'clean    ' if verdict.is_clean else 'NOT CLEAN'}  {verdict.oracle}")
        for finding in verdict.findings[:_SHOWN]:
            print(f"             - {finding[:400]}")
        if len(verdict.findings) > _SHOWN:
            print(f"             - and {len(verdict.findings) - _SHOWN} more")
        for note in verdict.notes:
            print(f"             ({note})")
    if options.json is not None:
        report = {
            "sessions": options.sessions,
            "clients": options.clients,
            "minutes": options.minutes,
            "seed": options.seed,
            "cores": os.cpu_count(),
            "faults": list(faults),
            "requests": taken,
            "verdicts": {v.oracle: {"findings": v.findings, "notes": v.notes} for v in verdicts},
            "memory": memory.rows(),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.connect", description=__doc__)
    parser.add_argument("--sessions", type=int, default=200, help="in all")
    parser.add_argument("--clients", type=int, default=20, help="processes")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long sessions begin and faults strike")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of what clients do")
    parser.add_argument("--json", type=Path, help="where a summary goes")
    options = parser.parse_args()
    if not 1 <= options.clients <= options.sessions:
        parser.error("--clients: each client has a session at least, so there are at most as many as --sessions")
    return options


if __name__ == "__main__":
    sys.exit(main())
