"""What is left to do when a job has ended: its exchange data, then its result, then its record and blobs.

Everything is owed by the job's head and repeated until it is done, by whichever replica notices; doing it twice is
harmless.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import structlog

from execution_graph import ExecutionGraph, JobState
from onager.clock import Clock
from onager.errors import JobNotFoundError, OnagerError, SchemaVersionError, StateCorruptError
from onager.exchange_layout import result_file
from onager.ids import BlobDigest, JobId
from onager.protocol import onager_pb2 as pb
from scheduler import wire
from scheduler.jobs.blobs import BlobStore
from scheduler.jobs.job_heads import JobHead, JobHeads
from scheduler.jobs.job_log import HEADER_KEYSPACES
from scheduler.jobs.job_store import JobStore
from scheduler.jobs.results import ResultStore
from scheduler.replicas.turns import Turns
from scheduler.settings import SchedulerSettings
from state_backend import ABSENT, Committed, Delete, DeleteRange, Keyspace, Op, Put, StateBackendClient

log = structlog.get_logger(__name__)

_CLEAN_UPS_PER_POLL: Final = 16
_CLEAN_UP_MOMENT_S: Final = 1.0
"""How long a scheduler leaves a clean-up to the one before it, which may have no executor to ask."""
_REMOVALS_PER_SWEEP: Final = 200
_ORPHAN_AGE_S: Final = 600
"""How long a blob whose job is not there may wait for it."""


class Leftovers(NamedTuple):
    """What is to be done about what lies in the exchange directory."""

    clean_ups: list[pb.CleanUp]
    tell_again: list[JobId]
    """Jobs of which nobody can say it yet."""


class Housekeeping:
    """Clean-up and retention of ended jobs."""

    def __init__(
        self,
        settings: SchedulerSettings,
        backend: StateBackendClient,
        jobs: JobStore,
        heads: JobHeads,
        blobs: BlobStore,
        results: ResultStore,
        turns: Turns,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._jobs = jobs
        self._heads = heads
        self._blobs = blobs
        self._results = results
        self._turns = turns
        self._clock = clock
        self._owed: dict[JobId, JobHead] = {}
        self._owed_since_s: dict[JobId, float] = {}
        self._prepared: dict[JobId, pb.CleanUp] = {}
        self._asked: dict[JobId, float] = {}
        self._orphans: set[tuple[JobId, BlobDigest]] = set()
        self._orphans_seen_s = -1.0 * _ORPHAN_AGE_S
        heads.listen(self._on_head)

    # ---------------------------------------------------------------- exchange data

    @property
    def has_clean_ups(self) -> bool:
        """Return whether an executor that polls now would be asked for something."""
        return bool(self._prepared)

    def clean_ups_for(self, executor_id: str) -> list[pb.CleanUp]:
        """Return clean-ups for the executor to carry out; each is asked of one executor at a time."""
        now_s = self._clock.monotonic_s()
        repeat_s = self._settings.clean_up_repeat_ms / 1000
        due: list[pb.CleanUp] = []
        for job_id, clean_up in self._prepared.items():
            if len(due) == _CLEAN_UPS_PER_POLL:
                break
            asked_s = self._asked.get(job_id)
            if asked_s is None or now_s - asked_s >= repeat_s:
                self._asked[job_id] = now_s
                due.append(clean_up)
        if due:
            log.debug("clean_ups_asked", executor_id=executor_id, jobs=len(due))
        return due

    async def prepare(self) -> bool:
        """Work out what has to be cleaned up for jobs that ended lately, where this scheduler has its turn.

        Return whether there is anything new to ask for.
        """
        found = False
        for job_id in [j for j in self._owed if j not in self._prepared]:
            head = self._owed.get(job_id)
            waited_s = self._clock.monotonic_s() - self._owed_since_s.get(job_id, 0.0)
            if head is None or not self._turns.has_come(job_id, waited_s, _CLEAN_UP_MOMENT_S):
                continue
            try:
                job = await self._jobs.get(job_id)
            except SchemaVersionError:
                continue  # who can read it knows which files are the result's
            except (JobNotFoundError, StateCorruptError):
                clean_up = pb.CleanUp(job_id=job_id)
            else:
                clean_up = clean_up_of(job.graph, keeps_result=head.clean_up == "intermediate")
            if self._owed.get(job_id) is head:
                self._prepared[job_id] = clean_up
                found = True
        return found

    async def cleaned_up(self, job_ids: Iterable[str]) -> None:
        """Note that an executor has carried out the clean-ups of these jobs."""
        for text in job_ids:
            job_id = JobId(text)
            head = self._heads.get(job_id)
            done = self._prepared.get(job_id)
            if head is None or done is None or head.clean_up == "none":
                continue
            if head.clean_up == "all" and done.keep_result:
                continue  # more is owed by now than was asked for then
            await self._put_head(head.model_copy(update={"clean_up": "none"}))

    async def leftovers(self, found: Iterable[pb.ExchangeFiles], lives: Callable[[str], bool]) -> Leftovers:
        """Return what to remove of what an executor found in the exchange directory, and what it shall tell of again.

        To remove is what ended jobs left there although they were cleaned up, because a task of theirs was late, and
        what executors that are dead by *lives*, which is given an incarnation, have not finished. Jobs that are not
        known here may be those of another cluster. Of one that is being cleaned up nobody can say yet whether its
        files are those that go, or have come since.
        """
        clean_ups: list[pb.CleanUp] = []
        tell_again: list[JobId] = []
        for each in found:
            job_id = JobId(each.job_id)
            head = self._heads.get(job_id)
            if head is None:
                continue
            if not head.is_active and head.clean_up != "none":
                tell_again.append(job_id)
                continue
            if head.is_active:
                dead = [writer for writer in each.writers if not lives(writer)]
                if dead:
                    clean_ups.append(pb.CleanUp(job_id=job_id, dead_writers=dead))
                continue
            try:
                job = await self._jobs.get(job_id)
            except (JobNotFoundError, StateCorruptError, SchemaVersionError):
                continue
            clean_ups.append(clean_up_of(job.graph, keeps_result=head.has_result and head.state is JobState.SUCCESSFUL))
        return Leftovers(clean_ups, tell_again)

    async def forgotten(self, kept: Iterable[str]) -> list[pb.CleanUp]:
        """Return what an executor need not keep in memory of the jobs *kept*: all of those that have ended.

        Files are removed by one executor, memory is each executor's own.
        """
        return [pb.CleanUp(job_id=job_id, memory_only=True) for job_id in kept if await self._is_over(JobId(job_id))]

    async def _is_over(self, job_id: JobId) -> bool:
        head = self._heads.get(job_id)
        if head is None:  # it is new, or so long over that nothing of it is left: the store knows
            return await self._backend.get(Keyspace.JobHeads, job_id) is None
        return not (head.is_active or self._heads.is_newer(job_id))  # who can read it may go on with it

    def _on_head(self, job_id: JobId, head: JobHead | None) -> None:
        known = self._owed.get(job_id)
        if head is None or head.clean_up == "none":
            self._owed.pop(job_id, None)
            self._owed_since_s.pop(job_id, None)
        else:
            self._owed[job_id] = head
            self._owed_since_s.setdefault(job_id, self._clock.monotonic_s())
        if known is None or head is None or known.clean_up != head.clean_up:
            self._prepared.pop(job_id, None)
            self._asked.pop(job_id, None)
        elif job_id in self._owed:
            self._owed[job_id] = head

    # ---------------------------------------------------------------- retention

    async def sweep(self) -> None:
        """Remove results, and later records, whose time is over; where others come first, a while later."""
        now_ms = self._clock.now_ms()
        result_ms = now_ms - self._settings.result_retention_s * 1000
        record_ms = now_ms - self._settings.record_retention_s * 1000
        moment_ms = 2 * self._settings.sweep_interval_ms
        removals = 0
        for head in list(self._heads):
            if head.ended_ms is None or removals >= _REMOVALS_PER_SWEEP:
                continue
            try:
                if head.ended_ms <= record_ms and head.clean_up == "none" and not head.has_result:
                    if self._turns.has_come(head.job_id, record_ms - head.ended_ms, moment_ms):
                        await self.remove(JobId(head.job_id))
                        removals += 1
                elif head.has_result and head.ended_ms <= min(result_ms, now_ms):  # noqa: SIM102 - beside the other
                    if self._turns.has_come(head.job_id, result_ms - head.ended_ms, moment_ms):
                        await self._expire(head)
                        removals += 1
            except OnagerError as error:
                log.warning("job_not_removed", job_id=head.job_id, error=str(error))
            await asyncio.sleep(0)

    async def collect_orphans(self) -> int:
        """Take back references of jobs that are not there, if they were not there a while ago either; return how many.

        A job's blobs are stored before the job itself, so one look does not prove that nobody wants them.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._orphans_seen_s < _ORPHAN_AGE_S * (1 + self._turns.place("orphans")):
            return 0
        self._orphans_seen_s = now_s
        found = await self._blobs.orphans(lambda job_id: self._heads.get(job_id) is not None)
        gone = found & self._orphans
        for job_id, digest in sorted(gone):
            await self._blobs.release(job_id, [digest])
        self._orphans = found - gone
        return len(gone)

    async def _expire(self, head: JobHead) -> None:
        """Remove a job's result, in the store now and in the exchange by an executor."""
        owes_files = head.state is JobState.SUCCESSFUL or head.clean_up != "none"
        expired = head.model_copy(update={"has_result": False, "clean_up": "all" if owes_files else "none"})
        if await self._put_head(expired):
            await self._results.remove(JobId(head.job_id))

    async def remove(self, job_id: JobId) -> None:
        """Remove everything that the store holds of an ended job."""
        digests: set[BlobDigest] = set()
        try:
            job = await self._jobs.load(job_id)
        except JobNotFoundError:
            pass
        else:
            digests = blobs_of(job.graph)
        await self._blobs.release(job_id, digests)
        ops: list[Op] = [
            *(Delete(keyspace, job_id) for keyspace in HEADER_KEYSPACES if keyspace is not Keyspace.ActiveJobs),
            Delete(Keyspace.JobHeads, job_id),
            DeleteRange(Keyspace.GraphChunks, f"{job_id}/"),
            DeleteRange(Keyspace.JobLog, f"{job_id}/"),
            DeleteRange(Keyspace.Results, f"{job_id}/"),
        ]
        result = await self._backend.put_txn(ops, expect={(Keyspace.ActiveJobs, job_id): ABSENT})
        if isinstance(result, Committed):
            self._jobs.forget(job_id)
            self._heads.removed(job_id, result.revision)
            log.info("job_removed", job_id=job_id)

    async def _put_head(self, head: JobHead) -> bool:
        job_id = JobId(head.job_id)
        key = (Keyspace.JobHeads, head.job_id)
        result = await self._backend.put_txn(
            [Put(Keyspace.JobHeads, head.job_id, head.encoded())], expect={key: self._heads.revision(job_id)}
        )
        if not isinstance(result, Committed):
            return False  # somebody else was first; the next sweep sees what is left
        self._heads.seen(head, result.revision)
        return True


def clean_up_of(graph: ExecutionGraph, *, keeps_result: bool) -> pb.CleanUp:
    """Return what of an ended job's exchange data has to go: all, or all but its result."""
    clean_up = pb.CleanUp(job_id=graph.job_id)
    if graph.plan is not None and graph.plan.sink is not None:
        clean_up.sink.CopyFrom(wire.sink_message(graph.plan.sink))
        return clean_up
    stage = graph.result_stage
    if keeps_result and stage is not None:
        clean_up.keep_files.extend(
            result_file(graph.job_id, stage.spec.stage_id, p, o.nonce).removeprefix(f"{graph.job_id}/")
            for p, o in sorted(stage.ledger.outputs.items())
            if not o.is_inline
        )
        clean_up.keep_result = bool(clean_up.keep_files)
    return clean_up


def blobs_of(graph: ExecutionGraph) -> set[BlobDigest]:
    """Return every blob that the job names."""
    digests = {graph.spec_digest}
    if graph.plan is not None and graph.plan.explain_digest:
        digests.add(graph.plan.explain_digest)
    for stage in graph.stages:
        if stage.spec.plan_digest:
            digests.add(stage.spec.plan_digest)
        digests |= {o.payload_digest for o in stage.ledger.outputs.values() if o.payload_digest}
    return {BlobDigest(d) for d in digests}
