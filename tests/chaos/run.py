"""One run of chaos, from start-up to the verdicts."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

import onager
from benchmarks.tpch.data import generate, views
from deploy.parts import StartError
from onager.errors import OnagerError
from tests.chaos.aftermath import Aftermath
from tests.chaos.cluster import ChaosCluster
from tests.chaos.expected import DIGESTS, SINK, expected
from tests.chaos.faults import EndedByItself, Injector
from tests.chaos.oracles import (
    Verdict,
    all_ended,
    died_for_a_reason,
    logs_calm,
    memory_bounded,
    nothing_ran_again,
    results_right,
    sinks_whole,
)
from tests.chaos.schedule import Targets, schedule
from tests.chaos.workload import PATIENCE_S, Client, JobRecord, look_closer

ROOT: Final = Path(__file__).resolve().parents[2]
CLIENTS: Final = 3
DISK_MIB: Final = 128
_USUAL_S: Final = 25.0
"""How long the first jobs take on two idle cores: what is slower gets more time."""
_END_S: Final = 180.0
_SAMPLE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run."""

    minutes: float
    seed: int
    directory: Path
    scale_factor: float = 0.01
    is_rolling: bool = False
    from_version: Path | None = None
    """The checkout whose schedulers and executors the run begins with; the restart at half-time upgrades them."""
    pushed: int = 0
    """How many executors are in push mode."""
    streams: bool = False
    """Whether queries stream from stage to stage."""
    has_small_disk: bool = True
    """Whether the exchange may be mounted as a disk of its own: a mount namespace of ours is needed for that."""


@dataclass(slots=True)
class Summary:
    """The results of a run."""

    seed: int
    minutes: float
    verdicts: list[Verdict] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return bool(self.verdicts) and all(verdict.is_clean for verdict in self.verdicts)


class Chaos:
    """A run in progress."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._data = generate(options.scale_factor)
        say(f"TPC-H at scale factor {options.scale_factor:g}; what plain Spark makes of it …")
        self._expected = expected(self._data, ROOT / "var" / "chaos")
        shutil.rmtree(options.directory, ignore_errors=True)
        for name in ("exchange", "sinks"):
            (options.directory / name).mkdir(parents=True)
        self._sinks = options.directory / "sinks"
        self._cluster = ChaosCluster(options.directory / "cluster", CLIENTS, options.pushed)
        if options.from_version:
            self._cluster.run_from(options.from_version, options.from_version / ".venv" / "bin" / "python")
        self._disk = options.directory / "exchange" if options.has_small_disk else None
        self._injector = Injector(self._cluster, options.seed, self._disk, say)
        self._clients = self._make_clients()
        self._most_bytes: dict[str, int] = {}
        self._rolling: Verdict | None = None

    async def run(self) -> Summary:
        """Start the cluster, hurt it, and return the verdicts."""
        began_s = time.monotonic()
        options = self._options
        with self._small_disk():
            self._say("starting etcd, schedulers, HAProxy and executors …")
            async with self._cluster as cluster:
                patience = await self._warm_up()
                links = sorted(cluster.links)
                names = [[part.name for part in cluster.local.named(kind)] for kind in ("scheduler", "executor")]
                targets = Targets(names[0], names[1], links, has_small_disk=options.has_small_disk)
                await self._chaos(schedule(options.seed, options.minutes * 60, targets), patience)
                summary = await self._look(patience)
            summary.verdicts.append(self._after_the_end())
        summary.seconds = round(time.monotonic() - began_s, 1)
        return summary

    @property
    def records(self) -> list[JobRecord]:
        """All jobs so far."""
        return [record for client in self._clients for record in client.records]

    # -- phases

    async def _warm_up(self) -> float:
        """Run a few jobs without faults; return how many times slower than usual they were, at least 1."""
        began_s = time.monotonic()
        address = self._cluster.local.addresses
        warm = self._make_client("warm-up", address)

        def run() -> None:
            with onager.connect(address, retry_timeout_s=PATIENCE_S) as client:
                for kind in ("q6", "q3", "digests", "q18", SINK):
                    warm.one_job(client, kind)

        await asyncio.to_thread(run)
        self._clients.append(warm)
        took_s = time.monotonic() - began_s
        self._say(f"warm: five jobs in {took_s:.0f} s")
        return max(1.0, took_s / _USUAL_S)

    async def _chaos(self, faults: Sequence[Any], patience: float) -> None:
        """Inject the faults while clients work; then heal the cluster, and let the clients finish."""
        clients = [client for client in self._clients if client.name.startswith("client")]
        for client in clients:
            client.start()
        watching = [asyncio.create_task(self._injector.supervise()), asyncio.create_task(self._sample())]
        try:
            if self._options.is_rolling:
                half_s = self._options.minutes * 30
                await self._injector.run(tuple(fault for fault in faults if fault.at_s < half_s))
                await self._roll()
                faults = [fault for fault in faults if fault.at_s >= half_s]
                await self._injector.run(tuple(f.earlier(half_s) for f in faults))
            else:
                await self._injector.run(tuple(faults))
            self._say("no more faults; clients finish what they have begun")
            for client in clients:
                client.stopping.set()
            end_s = time.monotonic() + _END_S * patience
            await asyncio.to_thread(lambda: [c.join(max(0.0, end_s - time.monotonic())) for c in clients])
            await self._await_whole()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _roll(self) -> None:
        """Restart all schedulers and all executors in order, under load: no job may fail."""
        await self._await_whole()
        self._rolling = Verdict("a rolling restart under load fails no job")
        local, from_s = self._cluster.local, time.monotonic()
        names = [part.name for kind in ("scheduler", "executor") for part in local.named(kind)]
        self._say(f"rolling restart of {', '.join(names)}")
        self._cluster.run_from(ROOT, Path(sys.executable))
        with self._injector.left_alone(*names):
            codes = await asyncio.to_thread(local.roll)
        self._say(
            f"rolling restart done in {time.monotonic() - from_s:.0f} s, exit codes {sorted(set(codes.values()))}"
        )
        self._rolling.findings += [f"{name} left with code {code}" for name, code in codes.items() if code]
        until_s = time.monotonic()
        for record in self.records:
            if record.trouble and from_s < record.submitted_s < until_s:
                self._rolling.findings.append(f"job {record.job_id}: {record.trouble}")
        ended = sum(from_s < (record.ended_s or 0) < until_s for record in self.records)
        self._rolling.notes.append(f"{ended} jobs ended meanwhile")

    async def _await_whole(self) -> None:
        """Wait until all parts run again."""
        local = self._cluster.local
        for part in list(local.parts.values()):
            for attempt in range(5):
                try:
                    await asyncio.to_thread(local.await_ready, part.name)
                except StartError as error:
                    # It ended by itself while it was waited for; the supervisor starts it again.
                    if attempt == 4:
                        self._say(f"{part.name} does not come back: {error}")
                    await asyncio.sleep(3.0)
                else:
                    break

    async def _look(self, patience: float) -> Summary:
        """Return all verdicts on the healed cluster."""
        self._say("looking at what is left …")
        await asyncio.to_thread(self._ask_again)
        aftermath = Aftermath(self._cluster, patience)
        faults, records = self._injector.injected, self.records
        sinks = {client.sink: [r for r in client.records if r.kind == SINK] for client in self._clients}
        verdicts = [
            all_ended(records),
            results_right(records, faults),
            nothing_ran_again(records),
            sinks_whole({path: wrote for path, wrote in sinks.items() if wrote}, self._expected[SINK]),
            await asyncio.to_thread(aftermath.store),
            await asyncio.to_thread(aftermath.executors),
            await asyncio.to_thread(aftermath.exchange, {record.job_id for record in records if record.offers}),
            await asyncio.to_thread(aftermath.processes),
            await asyncio.to_thread(aftermath.retention),
            died_for_a_reason(self._deaths, faults),
            memory_bounded(self._most_bytes),
        ]
        if self._rolling is not None:
            verdicts.append(self._rolling)
        local = self._cluster.local
        onagers = [part for part in local.parts.values() if part.name.startswith(("scheduler", "executor"))]
        verdicts.append(logs_calm({p.name: p.log.read_text(errors="replace") for p in onagers}, faults))
        return Summary(
            seed=self._options.seed,
            minutes=self._options.minutes,
            verdicts=verdicts,
            faults=self._injector.as_json(),
            jobs=_counts(records),
        )

    @property
    def _deaths(self) -> list[EndedByItself]:
        return self._injector.deaths

    def _ask_again(self) -> None:
        """Ask the whole cluster about jobs whose clients do not know how they ended."""
        with onager.connect(self._cluster.local.addresses, retry_timeout_s=PATIENCE_S) as client:
            for record in self.records:
                if record.ended_s is None and record.acknowledged_s is not None:
                    with contextlib.suppress(OnagerError):
                        progress = client.job(record.job_id).progress()
                        if progress.state.is_final:
                            look_closer(client, record)
                        state = f"the cluster says {progress.state.value} {progress.waiting_for}"
                        record.trouble = f"{record.trouble or 'the client waits'}; {state}"

    def _after_the_end(self) -> Verdict:
        """Look for processes of ours when all parts have been asked to end."""
        verdict = Verdict("no process outlives the cluster")
        end_s = time.monotonic() + 30.0
        while (left := self._cluster.marked()) and time.monotonic() < end_s:
            time.sleep(0.5)
        verdict.findings += [f"{pid}: {command}" for pid, command in left.items()]
        for pid in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        return verdict

    # -- parts

    def _make_clients(self) -> list[Client]:
        return [self._make_client(name, address) for name, address in self._cluster.clients.items()]

    def _make_client(self, name: str, address: str) -> Client:
        # The version before refuses settings that it does not know.
        lay_out = self._options.from_version is None
        seed, tables = self._options.seed, views(self._data)
        streams = self._options.streams
        return Client(name, address, seed, tables, self._expected, self._sinks, lay_out=lay_out, streams=streams)

    @contextlib.contextmanager
    def _small_disk(self) -> Iterator[None]:
        if self._disk is None:
            yield
            return
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(self._disk)]
        subprocess.run(mount, check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(self._disk)], check=False)

    async def _sample(self) -> None:
        """Note how much memory schedulers take."""
        while True:
            for part in self._cluster.local.named("scheduler"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if part.is_running:
                        size = psutil.Process(part.pid).memory_info().rss
                        self._most_bytes[part.name] = max(size, self._most_bytes.get(part.name, 0))
            await asyncio.sleep(_SAMPLE_S)


def _counts(records: Sequence[JobRecord]) -> dict[str, int]:
    """Return how many jobs there were, and how long the longest took, in seconds."""
    return {
        "submitted": len(records),
        "acknowledged": sum(record.acknowledged_s is not None for record in records),
        "right": sum(record.is_successful for record in records),
        "writing": sum(record.kind == SINK for record in records),
        "python": sum(record.kind == DIGESTS for record in records),
        "streamed": sum(record.streamed == "yes" for record in records),
        "streamed in vain": sum(record.streamed not in ("", "yes") for record in records),
        "longest_s": round(max((r.ended_s - r.submitted_s for r in records if r.ended_s), default=0)),
    }
