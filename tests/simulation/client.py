"""A client: submits and repeats, watches, cancels, fetches, and checks all answers."""

import asyncio
import contextlib
import random  # noqa: TID251 seeded
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from grpc import StatusCode
from grpc.aio import AioRpcError

from onager.errors import (
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    NotFoundError,
    OnagerError,
    OutcomeUnknownError,
    ResultExpiredError,
    SchedulerUnreachableError,
    SchemaVersionError,
    StateCorruptError,
    StateUnavailableError,
)
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.onager_pb2_grpc import OnagerSchedulerStub
from onager.protocol.status import from_rpc_error
from onager.state_backend import Keyspace
from tests.simulation import reuse
from tests.simulation.data import JobPlan
from tests.simulation.network import Channel
from tests.simulation.scripts import ScriptPlan

if TYPE_CHECKING:
    from tests.simulation.world import World

_ENDS = (pb.SUCCESSFUL, pb.FAILED, pb.CANCELLED)


class SimulatedClient:
    """One user with some jobs."""

    def __init__(self, world: "World", number: int, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.name = f"client-{number}"
        self._exchange_rng = random.Random(f"exchange {number} {world.seed}")
        self._layout_rng = random.Random(f"layout {number} {world.seed}")
        self._replan_rng = random.Random(f"replan {number} {world.seed}")
        self.process = world.loop.start_process(self.name)
        self._stubs = [OnagerSchedulerStub(Channel(world.network, r.address)) for r in world.schedulers]
        self._at = rng.randrange(len(self._stubs))
        self.jobs: dict[str, JobPlan] = {}
        self.confs: dict[str, dict[str, str]] = {}
        self.scripts: dict[str, ScriptPlan] = {}
        self.retried: dict[str, str] = {}
        """The script of which each one is a retry."""
        self.jobs_of_steps: dict[str, JobPlan] = {}
        """Those that were successful."""
        self.acknowledged: dict[str, None] = {}
        self.cancelled: dict[str, None] = {}
        self.reported: dict[str, int] = {}
        """The final state reported for each job."""
        self.fetched: dict[str, list[list[int]]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, job_id: str, plan: JobPlan, at_s: float) -> None:
        self.jobs[job_id] = plan
        self.confs[job_id] = self._draw_conf()
        self.tasks.append(self.world.loop.spawn(self.process, self._job(job_id, plan, at_s)))

    def _draw_conf(self) -> dict[str, str]:
        conf = {}
        if self.rng.random() < 0.5 or self.world.is_mixed:
            conf = {"onager.speculation": "true", "onager.speculation.quantile": self.rng.choice(("0.3", "0.75"))}
        if self.rng.random() < 0.15:
            conf["onager.session.max-tasks"] = self.rng.choice(("1", "3"))
        if self._exchange_rng.random() < 0.3:
            conf["onager.exchange"] = "streaming"
        if fuse_bytes := self._layout_rng.choice(("", "", "0", "40", "80")):
            conf["onager.adaptive.fuseBytes"] = fuse_bytes
        if self._layout_rng.random() < 0.9:
            conf["onager.adaptive"] = self._replan_rng.choice(("on", "on", "force"))
        if self.world.is_replanned and self._replan_rng.random() < 0.7:
            conf["onager.adaptive"] = "force"
            conf.pop("onager.exchange", None)  # what streams is not planned again
            if self._replan_rng.random() < 0.7:
                conf["onager.adaptive.fuseBytes"] = "0"  # nor is what one task computes
        return conf | (reuse.CONF if self.world.is_reusing else {})

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self.tasks)

    # ---------------------------------------------------------------- a job from the user's side

    async def _job(self, job_id: str, plan: JobPlan, at_s: float) -> None:
        await asyncio.sleep(at_s)
        await self._submit(job_id, plan)
        if self.rng.random() < 0.12:
            await asyncio.sleep(self.rng.random() * 4)
            await self._cancel(job_id)
        if self.rng.random() < 0.3:
            await self._submit(job_id, plan, is_repeated=True)
        state = await self._watch(job_id)
        self.reported[job_id] = state
        self.world.trace(f"{self.name} learns that {job_id} is {pb.JobState.Name(state)}")
        if state == pb.SUCCESSFUL and not plan.has_sink:
            self.fetched[job_id] = await self._fetch(job_id)
        if self.rng.random() < 0.3:
            await self._submit(job_id, plan, is_repeated=True)
            if (again := await self._watch(job_id)) != state:
                self.world.observer.fail(f"{job_id} ended as {state}, and then as {again}")

    async def _submit(self, job_id: str, plan: JobPlan, *, is_repeated: bool = False) -> None:
        request = pb.SubmitJobRequest(
            job_id=job_id,
            spec=pb.JobSpec(sql=pb.SqlScript(text=plan.text()), name=job_id, conf=self.confs[job_id]),
            client_id=self.name,
            protocol_version=PROTOCOL_VERSION,
        )
        answer = await self._until_answered(lambda stub: stub.SubmitJob(request, timeout=20.0))
        if is_repeated and not answer.existed:
            self.world.observer.fail(f"{job_id} was acknowledged before, and a repeated submission made it anew")
        self.acknowledged[job_id] = None
        self.world.trace(f"{self.name} submitted {job_id}")

    async def _cancel(self, job_id: str) -> None:
        self.cancelled[job_id] = None
        request = pb.CancelJobRequest(job_id=job_id, reason="changed my mind")
        try:
            answer = await self._until_answered(
                lambda stub: stub.CancelJob(request, timeout=20.0), (StateCorruptError,)
            )
        except StateCorruptError as error:
            if not self.world.damage.is_of(job_id):
                self.world.observer.fail(f"{self.name} got StateCorruptError: {error}")
            return
        self.world.trace(f"{self.name} cancels {job_id}: {answer.cancelled}")

    async def _watch(self, job_id: str, expected: tuple[type[OnagerError], ...] = ()) -> int:
        state = pb.JOB_STATE_UNSPECIFIED

        async def follow(stub: Any) -> bool:
            nonlocal state
            async for progress in stub.WatchJob(pb.WatchJobRequest(job_id=job_id), timeout=300.0):
                state = progress.state
            return state in _ENDS

        while not await self._until_answered(follow, expected):
            self.world.observer.fail(f"the stream of {job_id} ended before the job")
        return state

    async def _fetch(self, job_id: str, expected: tuple[type[OnagerError], ...] = ()) -> list[list[int]]:
        """Read the whole result, going on behind the last batch whenever a stream breaks."""
        partition, batch = 0, 0
        rows: dict[int, list[int]] = {}
        pieces: list[bytes] = []

        async def read(stub: Any) -> None:
            nonlocal partition, batch
            pieces.clear()
            schema = None
            request = pb.FetchResultRequest(job_id=job_id, partition=partition, batch=batch)
            async for chunk in stub.FetchResult(request, timeout=300.0):
                if chunk.schema:
                    schema = pa.ipc.read_schema(pa.py_buffer(chunk.schema))
                if chunk.record_batch:
                    pieces.append(chunk.record_batch)
                    if not chunk.more:
                        found = pa.ipc.read_record_batch(pa.py_buffer(b"".join(pieces)), schema)
                        rows.setdefault(chunk.partition, []).extend(found.column(0).to_pylist())
                        partition, batch = chunk.partition, chunk.batch + 1
                        pieces.clear()

        await self._until_answered(read, expected)
        return [rows.get(p, []) for p in range(max(rows, default=-1) + 1)]

    # ---------------------------------------------------------------- long afterwards

    async def look_back(self, *, is_record_there: bool) -> None:
        """Ask for jobs that are past the retention of their results, or of their records as well.

        As long as its record is there, a job that is submitted again is the same job, however late.
        """
        await self._list(is_record_there=is_record_there)
        for job_id, plan in self.jobs.items():
            if not is_record_there:
                await self._expect(job_id, self._watch(job_id, (JobNotFoundError,)), JobNotFoundError)
                continue
            if self.world.damage.is_of(job_id):
                await self._remove(job_id)
                continue
            await self._submit(job_id, plan, is_repeated=True)
            if (state := await self._watch(job_id)) != self.reported[job_id]:
                self.world.observer.fail(f"{job_id} ended as {self.reported[job_id]}, and long afterwards as {state}")
            if state == pb.SUCCESSFUL and not plan.has_sink:
                await self._expect(job_id, self._fetch(job_id, (ResultExpiredError,)), ResultExpiredError)

    async def _list(self, *, is_record_there: bool) -> None:
        """Ask for all jobs: each is there as long as its record is, also beside one that cannot be read."""
        answer = await self._until_answered(lambda stub: stub.ListJobs(pb.ListJobsRequest(), timeout=20.0))
        listed = {job.job_id: job.state for job in answer.jobs}
        expected = self.reported if is_record_there else {}
        for job_id in self.jobs:
            if not self.world.damage.is_of(job_id) and listed.get(job_id) != expected.get(job_id):
                self.world.observer.fail(f"{job_id} is listed as {listed.get(job_id)}, not {expected.get(job_id)}")

    async def _expect(self, job_id: str, asking: Awaitable[Any], expected: type[OnagerError]) -> None:
        try:
            found = await asking
        except expected:
            return
        self.world.observer.fail(f"{job_id}: {self.name} got {found} instead of {expected.__name__}")

    async def _remove(self, job_id: str) -> None:
        """Remove the records of an unreadable job, as an operator would."""
        self.world.observer.removed_by_hand.add(job_id)
        headers = [f"{k}/{job_id}" for k in ("JobHeads", "ActiveJobs", "CompletedJobs", "FailedJobs")]
        for path in (*headers, *(f"{k}/{job_id}/" for k in ("JobLog", "GraphChunks", "Results"))):
            request = pb.RemoveStateRequest(path=path, force=True)
            with contextlib.suppress(NotFoundError):
                await self._until_answered(partial(_remove_state, request), (NotFoundError,))

    async def drain(self, executor_id: str) -> None:
        """Have a scheduler ask an executor to leave, as an operator would."""
        request = pb.DrainExecutorRequest(executor_id=executor_id)
        answer = await self._until_answered(lambda stub: stub.DrainExecutor(request, timeout=20.0))
        self.world.trace(f"{self.name} drains {executor_id}: {answer.running} running")

    # ---------------------------------------------------------------- calls

    async def _until_answered(
        self, attempt: Callable[[Any], Awaitable[Any]], expected: tuple[type[OnagerError], ...] = ()
    ) -> Any:
        """Return what *attempt* gets from a scheduler; raise what is *expected* to come instead."""
        while True:
            at = self._at
            try:
                return await attempt(self._stubs[at])
            except AioRpcError as raw:
                error = from_rpc_error(raw, self.world.schedulers[at].address)
                if isinstance(error, expected):
                    raise error from raw
                if not self._may_pass(raw, error) and not self._is_newest_away(error):
                    self.world.observer.fail(f"{self.name} got {type(error).__name__}: {error}")
                    raise asyncio.CancelledError from raw
                self._at = (at + 1) % len(self._stubs)
                await asyncio.sleep(0.05 + self.rng.random() * 0.4)

    def _is_newest_away(self, error: OnagerError) -> bool:
        """Return whether no scheduler that reads a newer release's records runs now; one will again.

        The others may not know yet of one that came a moment ago.
        """
        registered = self.world.observer.stored[Keyspace.Schedulers]
        running = [r for r in self.world.schedulers if r.process is not None and not r.process.is_paused]
        known = [r for r in running if r.name in registered and self.world.loop.time() - r.began_s > 1.0]
        newest = [r for r in known if not r.process.is_old]
        return isinstance(error, SchemaVersionError) and not newest

    @staticmethod
    def _may_pass(raw: AioRpcError, error: OnagerError) -> bool:
        # These errors say how a job has ended: they are no trouble of the call.
        if isinstance(error, JobFailedError | JobCancelledError | ResultExpiredError):
            return False
        is_trouble = isinstance(error, SchedulerUnreachableError | StateUnavailableError | OutcomeUnknownError)
        return is_trouble or raw.code() is StatusCode.CANCELLED


async def _remove_state(request: pb.RemoveStateRequest, stub: Any) -> Any:
    return await stub.RemoveState(request, timeout=20.0)
