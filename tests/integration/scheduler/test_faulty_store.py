"""Two schedulers, whole jobs, real gRPC, and a store that fails at every turn."""

import asyncio
import random  # noqa: TID251 seeded
from collections import Counter

import pytest

from onager.clock import SystemClock
from onager.protocol import onager_pb2 as pb
from onager.state_backend import Keyspace
from onager.state_backend.faulty import FaultKind, FaultyBackend, seeded
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.test_jobs import RESULT, two_stages
from tests.integration.scheduler.test_several_schedulers import scheduler
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.waiting import HANGS_S, eventually

RATES = {
    FaultKind.UNAVAILABLE: 0.03,
    FaultKind.SLOW_REQUEST: 0.1,
    FaultKind.SLOW_ANSWER: 0.05,
    FaultKind.UNKNOWN_UNWRITTEN: 0.07,
    FaultKind.UNKNOWN_WRITTEN: 0.07,
    FaultKind.UNKNOWN_LATE: 0.07,
    FaultKind.COMPACTED: 0.05,
    FaultKind.CUT: 0.05,
}
JOBS = 6


class Switched(FaultyBackend):
    """Fails while switched on."""

    def __init__(self, inner, seed):
        draw = random.Random(seed)
        plan = seeded(draw.random, RATES)
        super().__init__(
            inner,
            lambda operation: plan(operation) if self.is_failing else None,
            SystemClock(),
            delay_s=lambda: draw.random() / 50,
        )
        self.is_failing = False


@pytest.mark.parametrize("seed", range(3))
async def test_jobs_end_right_over_a_store_that_fails_at_every_turn(tmp_path, tell, seed):
    honest = MemoryStore(SystemClock())
    backends = [Switched(MemoryBackend(honest), 10 * seed + n) for n in range(2)]
    async with (
        backends[0],
        backends[1],
        scheduler(backends[0], tmp_path) as here,
        scheduler(backends[1], tmp_path) as there,
        executor(here.address, "e1", two_stages("e1", width=8)) as e1,
        executor(there.address, "e2", two_stages("e2", width=8)) as e2,
    ):
        await eventually(lambda: e1.registrations and e2.registrations)
        clients = [Client(here.address), Client(there.address)]
        for backend in backends:
            backend.is_failing = True
        job_ids = [f"job-{n}" for n in range(JOBS)]
        for n, job_id in enumerate(job_ids):
            await submit(clients[n % 2], job_id)
        ended = [await clients[(n + 1) % 2].wait(job_id) for n, job_id in enumerate(job_ids)]
        for backend in backends:
            backend.is_failing = False
        assert [progress.state for progress in ended] == [pb.SUCCESSFUL] * JOBS
        for job_id in job_ids:
            for client in clients:
                # The scheduler that did not end it has to look before it says what it remembers.
                assert await client.fetch(job_id) == RESULT
                detail = await client.detail(job_id)
                assert {t.successes for stage in detail.progress.stages for t in stage.tasks} == {1}
        for client in clients:
            await client.close()
        auditor = MemoryBackend(honest)

        async def no_job_is_active():
            return not len(await auditor.scan_keys(Keyspace.ActiveJobs, limit=1))

        await eventually(no_job_is_active)
    met = sum((backend.met for backend in backends), Counter())
    tell(f"{JOBS} jobs, faults { {str(kind): count for kind, count in sorted(met.items())} }")
    assert sum(count for kind, count in met.items() if kind.startswith("unknown")) > 10


async def submit(client, job_id):
    """Submit as a client does: again, until it is known that it was taken."""
    async with asyncio.timeout(HANGS_S):
        while True:
            try:
                await client.submit(job_id)
            except Exception as error:
                if "UNAVAILABLE" not in str(error) and "unknown" not in str(error).lower():
                    raise
                await asyncio.sleep(0.05)
            else:
                return
