"""What an executor's processes use: sampled, and reported with heartbeats."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from onager.executor.agent.load_watch import LoadWatch
from onager.executor.spark.load import ProcessTree
from onager.ids import JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from tests.support.fakes.scripted_gateway import rig
from tests.support.waiting import eventually, until

BUSY = "import sys\nprint(flush=True)\nwhile True: pass"
FORKS = "import os, time\nos.fork()\nprint(flush=True)\ntime.sleep(60)"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            each.kill()
        process.communicate()


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


def test_memory_and_time_are_those_of_the_whole_tree(started: list[subprocess.Popen[bytes]]) -> None:
    now_s = [0.0]
    tree = ProcessTree(os.getpid(), lambda: now_s[0])
    before = tree.look()
    assert before.cpu_percent == 0
    assert before.rss_bytes >= 10 << 20
    started.append(start(BUSY))
    busy = psutil.Process(started[0].pid)
    until(lambda: busy.cpu_times().user >= 0.5)
    now_s[0] = 1.0
    after = tree.look()
    assert after.rss_bytes > before.rss_bytes
    assert after.cpu_percent >= 50


def test_sparks_python_workers_are_counted_and_not_what_forks_them(started: list[subprocess.Popen[bytes]]) -> None:
    tree = ProcessTree()
    assert tree.look().python_workers == 0
    started.append(start(FORKS, "pyspark.daemon"))
    assert tree.look().python_workers == 1
    started.append(start(BUSY, "pyspark.worker"))
    assert tree.look().python_workers == 2


async def test_nothing_is_reported_while_nothing_is_known() -> None:
    async def sample() -> None:
        return None

    watch = LoadWatch(sample)
    await watch.run()
    request = pb.HeartbeatRequest()
    watch.add_to(request, 4)
    assert not request.HasField("load")


async def test_heartbeats_carry_the_load() -> None:
    async with rig(slots=3) as r:
        await eventually(lambda: r.gateway.heartbeats)
        assert not r.gateway.heartbeats[0].HasField("load")
    async with rig(slots=3, load=pb.ExecutorLoad(rss_bytes=5)) as r:
        await eventually(lambda: r.gateway.heartbeats and r.gateway.heartbeats[-1].HasField("load"))
        assert r.gateway.heartbeats[-1].load == pb.ExecutorLoad(rss_bytes=5, free_slots=3)


async def test_the_memory_in_use_is_reported_once_a_sample_for_each_stage() -> None:
    samples = [pb.ExecutorLoad(rss_bytes=5), pb.ExecutorLoad(rss_bytes=6), None]

    async def sample() -> pb.ExecutorLoad | None:
        return samples.pop(0)

    watch = LoadWatch(sample)
    keys = [TaskKey(JobId("j"), StageId(stage), 0, Partition(p), 0) for stage in (1, 2) for p in (0, 1)]
    assert [watch.rss_bytes(key) for key in keys] == [0, 0, 0, 0]
    looking = asyncio.create_task(watch.run())
    await eventually(lambda: len(samples) == 2)
    assert [watch.rss_bytes(key) for key in keys] == [5, 0, 5, 0]
    looking.cancel()
