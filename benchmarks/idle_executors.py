"""Executors that have nothing to do: ``python -m benchmarks.idle_executors --json FILE``.

Three real schedulers on etcd, and ``--executors`` agents without Spark, in a few processes. They register, send
heartbeats and poll for ``--seconds``. With ``--load N`` so many processes compute beside them.

| figure | what it is |
|---|---|
| ``registered_s`` | from the start of the agents until a scheduler knows all of them |
| ``scheduler_cores`` | processor time of all schedulers in a second |
| ``agent_cores``, ``store_cores`` | the same of the agents, which share this machine with them, and of etcd |
| ``lost`` | executors that were declared lost, though all of them live; ``lost_because`` says why |
| ``listing_s`` | how long a client waits for the list of all, and for the first hundred |
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final
from unittest import mock

import psutil

from benchmarks.bare_cluster import BareCluster, store
from benchmarks.state.machine import describe
from onager.client import OnagerClient
from tests.support.fakes.agents import agent

_SCHEDULERS: Final = 3
_A_PROCESS: Final = 250
_READY_S: Final = 300.0
_SHOWN: Final = 10
_START_EVERY_S: Final = 0.04
"""Between the starts of two executors of a process: they share the machine with the schedulers, and a start costs as
much as a minute of doing nothing."""


def stay(addresses: list[str], first: int, count: int, is_over: Event) -> None:
    """Run executors until that is over, in a process of its own."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for number in range(first, first + count):
                # Each on a machine of its own, so that no scheduler looks for its process.
                places = {"first": number, "machine": f"machine-{number}"}
                await stack.enter_async_context(agent(addresses, f"idle-{number}", lambda *_: None, **places))
                await asyncio.sleep(_START_EVERY_S)
            await asyncio.to_thread(is_over.wait)

    # Elsewhere an executor looks at its worker twice a second for nothing; here a thousand of them share two cores.
    with mock.patch("onager.executor.agent.endings._CHECK_S", 30.0):
        asyncio.run(run())


def compute(is_over: Event) -> None:
    """Keep a core busy."""
    while not is_over.is_set():
        sum(range(100_000))


@contextmanager
def _idle(addresses: list[str], executors: int, load: int) -> Iterator[list[int]]:
    spawning = multiprocessing.get_context("spawn")
    is_over = spawning.Event()
    processes = [
        spawning.Process(target=stay, args=(addresses, first, min(_A_PROCESS, executors - first), is_over), daemon=True)
        for first in range(0, executors, _A_PROCESS)
    ]
    agents = len(processes)
    processes += [spawning.Process(target=compute, args=(is_over,), daemon=True) for _ in range(load)]
    for process in processes:
        process.start()
    try:
        yield [process.pid or 0 for process in processes[:agents]]
    finally:
        is_over.set()
        for process in processes:
            process.join(10.0)
            process.kill()


def measure(executors: int, seconds: float, load: int) -> dict[str, Any]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as directory:
        machine = describe(Path(directory))
        with (
            store("etcd", Path(directory)) as found,
            BareCluster(found.url, schedulers=_SCHEDULERS, executor_slots=()) as cluster,
            cluster.connect() as client,
            _idle(cluster.addresses, executors, load) as agents,
        ):
            registered_s = _registered_s(client, executors)
            schedulers = [process.running.pid for process in cluster.schedulers if process.running is not None]
            sides = {"scheduler": schedulers, "agent": agents, "store": [] if found.pid is None else [found.pid]}
            cores = _cores(sides, seconds)
            listing = [_timed(client.list_executors), _timed(lambda: client.list_executors(limit=100))]
            lost = [line for process in cluster.schedulers for line in _lost(cluster.log_of(process, lines=1_000_000))]
    return {
        "machine": {**machine, "load_at_end": round(os.getloadavg()[0], 2)},
        "executors": executors,
        "seconds": seconds,
        "load": load,
        "registered_s": round(registered_s, 1),
        **cores,
        "lost": len(lost),
        "lost_because": lost[:_SHOWN],
        "listing_s": [round(listed_s, 3) for listed_s in listing],
    }


def _registered_s(client: OnagerClient, executors: int) -> float:
    begun_s = time.monotonic()
    while client.list_executors(limit=1).states.get("alive", 0) < executors:
        if time.monotonic() > begun_s + _READY_S:
            raise TimeoutError(f"not all executors have registered: {client.list_executors(limit=1).states}")
        time.sleep(0.5)
    return time.monotonic() - begun_s


def _cores(sides: Mapping[str, list[int]], seconds: float) -> dict[str, float]:
    began_s, before = time.monotonic(), {side: _cpu_s(pids) for side, pids in sides.items()}
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    return {f"{side}_cores": round((_cpu_s(pids) - before[side]) / took_s, 2) for side, pids in sides.items()}


def _lost(log: str) -> list[str]:
    return [line for line in log.splitlines() if "executor_lost" in line]


def _timed(call: Any) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _cpu_s(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(float(each.user + each.system) for each in times)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_executors", description=__doc__)
    parser.add_argument("--executors", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--load", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON (default: printed)")
    options = parser.parse_args()
    text = json.dumps(measure(options.executors, options.seconds, options.load), indent=1)
    if options.json is None:
        print(text)
    else:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
