"""Who has programs: submits, watches, cancels and retries them."""

import asyncio
import random  # noqa: TID251 seeded
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onager.errors import BusyError, InvalidRequestError, JobNotEndedError, NotFoundError, OnagerError
from onager.protocol import onager_pb2 as pb
from tests.simulation.programs.plans import spec_of

if TYPE_CHECKING:
    from tests.simulation.client import SimulatedClient

_CANCELLED = 0.15
_RETRIED = 0.8


@dataclass(slots=True)
class Submitted:
    """A program, and the jobs that went on with it, each with how its user learned that it ended."""

    program_id: str
    jobs: dict[str, int] = field(default_factory=dict)


def begin_some(client: "SimulatedClient", number: int, span_s: float) -> None:
    """Have a client submit one or two programs within *span_s*."""
    world = client.world
    for n in range(random.Random(f"programs {number} {world.seed}").choice((1, 2))):
        rng = random.Random(f"user {number} {n} {world.seed}")
        program = Submitted(f"program-{number}-{n}")
        world.ledger.submitted[program.program_id] = program
        use = _use(client, program, rng, rng.random() * span_s * 0.4)
        client.tasks.append(world.loop.spawn(client.process, use))


async def _use(client: "SimulatedClient", program: Submitted, rng: random.Random, at_s: float) -> None:
    await asyncio.sleep(at_s)
    name = program.program_id
    request = pb.SubmitJobRequest(job_id=name, spec=spec_of(name, client.world.seed), client_id=client.name)
    await client._until_answered(lambda stub: stub.SubmitJob(request, timeout=20.0))
    program.jobs[name] = pb.JOB_STATE_UNSPECIFIED
    if rng.random() < _CANCELLED:
        await asyncio.sleep(rng.random() * 6)
        await client._cancel(name)
    await _watch(client, program, name)
    if program.jobs[name] != pb.SUCCESSFUL and rng.random() < _RETRIED:
        await _retry(client, program, f"{name}-again")


async def _watch(client: "SimulatedClient", program: Submitted, job_id: str) -> None:
    program.jobs[job_id] = await client._watch(job_id)
    client.world.trace(f"{client.name} learns that {job_id} is {pb.JobState.Name(program.jobs[job_id])}")


async def _retry(client: "SimulatedClient", program: Submitted, again: str) -> None:
    request = pb.RetryJobRequest(job_id=program.program_id, new_job_id=again, client_id=client.name)
    expected: tuple[type[OnagerError], ...] = (JobNotEndedError, InvalidRequestError, NotFoundError)

    async def retry() -> None:
        while True:
            try:
                await client._until_answered(lambda stub: stub.RetryJob(request, timeout=20.0), (*expected, BusyError))
            except BusyError:  # what the program has left running still ends
                await asyncio.sleep(0.5)
            else:
                return

    try:
        await retry()
    except expected as error:
        client.world.trace(f"{program.program_id} is not retried: {error}")
        client.world.ledger.not_retried(program.program_id, error)
        return
    program.jobs[again] = pb.JOB_STATE_UNSPECIFIED
    await _watch(client, program, again)
