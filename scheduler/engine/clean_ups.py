"""Clean-up: what to remove from the exchange directory when a job has ended.

The job's head says that it is due, and any scheduler that notices repeats it until it is done; doing it twice is
harmless.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

import structlog

from onager.errors import JobNotFoundError, SchemaVersionError, StateCorruptError
from onager.exchange_layout import kept_stage, result_name
from onager.execution_graph import ExecutionGraph, JobState
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler import timing, wire
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_specs import decode_spec
from onager.state_backend import Keyspace

log = structlog.get_logger(__name__)

_CLEAN_UPS_AT_ONCE: Final = 512
"""The clean-ups in one answer: an executor whose slots are always taken polls only a few times per heartbeat."""
_PREPARED_AT_ONCE: Final = 32


class Leftovers(NamedTuple):
    """What to do about the files in the exchange directory."""

    clean_ups: list[pb.CleanUp]
    tell_again: list[JobId]
    """Jobs that cannot be judged yet."""


class CleanUps:
    """Clean-up of ended jobs."""

    def __init__(self, env: Env, store: Store, view: ClusterView) -> None:
        self._env = env
        self._store = store
        self._view = view
        self._due: dict[JobId, JobHead] = {}
        self._due_since_s: dict[JobId, float] = {}
        self._prepared: dict[JobId, pb.CleanUp] = {}
        self._asked: dict[JobId, float] = {}
        self._reading_spec = asyncio.Semaphore(1)  # a spec may be as large as a message

    # ---------------------------------------------------------------- exchange data

    @property
    def has_clean_ups(self) -> bool:
        """Return whether there is a clean-up to ask of an executor that polls now."""
        return bool(self._prepared)

    def clean_ups_for(self, executor_id: str) -> list[pb.CleanUp]:
        """Return clean-ups for the executor to carry out; each is asked of one executor at a time."""
        now_s = self._env.clock.monotonic_s()
        repeat_s = self._env.settings.clean_up_repeat_ms / 1000
        due: list[pb.CleanUp] = []
        for job_id, clean_up in self._prepared.items():
            if len(due) == _CLEAN_UPS_AT_ONCE:
                break
            asked_s = self._asked.get(job_id)
            if asked_s is None or now_s - asked_s >= repeat_s:
                self._asked[job_id] = now_s
                due.append(clean_up)
        if due:
            log.debug("clean_ups_asked", executor_id=executor_id, jobs=len(due))
        return due

    async def prepare(self) -> bool:
        """Work out the clean-ups of jobs that ended lately, where it is this scheduler's turn.

        Return whether there is a new clean-up to ask for.
        """
        waiting: list[tuple[JobId, JobHead]] = []
        for job_id in [j for j in self._due if j not in self._prepared and not self._store.heads.may_be_read(j)]:
            waited_s = self._env.clock.monotonic_s() - self._due_since_s.get(job_id, 0.0)
            if self._view.precedence.has_come(job_id, waited_s, timing.CLEAN_UP_MOMENT_S):
                waiting.append((job_id, self._due[job_id]))
        found = False
        for start in range(0, len(waiting), _PREPARED_AT_ONCE):
            some = waiting[start : start + _PREPARED_AT_ONCE]
            for (job_id, head), clean_up in zip(
                some, await asyncio.gather(*(self._wanted(*w) for w in some)), strict=True
            ):
                if clean_up is not None and self._due.get(job_id) is head:
                    self._prepared[job_id] = clean_up
                    found = True
        return found

    async def _wanted(self, job_id: JobId, head: JobHead) -> pb.CleanUp | None:
        is_plain = head.sink_path is None and not head.retires_folders and not head.reusable
        if head.state is JobState.SUCCESSFUL and not head.has_result and is_plain:
            return pb.CleanUp(job_id=job_id)  # most expired jobs: there is no need to read them
        try:
            job = await self._store.jobs.get(job_id)
        except SchemaVersionError:
            return None  # a scheduler that can read it knows which files are the result's
        except (JobNotFoundError, StateCorruptError):
            return pb.CleanUp(job_id=job_id)
        keeps_result = head.clean_up == "intermediate" and head.state is JobState.SUCCESSFUL
        clean_up = clean_up_of(job.graph, keeps_result=keeps_result, keeps_stages=head.reusable.values())
        if job.graph.plan is None:
            await self._add_sink(clean_up, job.graph)
        return clean_up

    async def _add_sink(self, clean_up: pb.CleanUp, graph: ExecutionGraph) -> None:
        """Add the removal of staged files for a query that ran while it was planned, and never got a plan."""
        async with self._reading_spec:
            spec = await self._store.blobs.find(graph.spec_digest, decode_spec)
        if spec is not None and spec.HasField("sink"):
            clean_up.sink.CopyFrom(spec.sink)

    async def cleaned_up(self, job_ids: Iterable[str]) -> None:
        """Note that an executor has carried out the clean-ups of these jobs."""
        clean: dict[JobId, JobHead] = {}
        for text in job_ids:
            job_id = JobId(text)
            head = self._store.heads.get(job_id)
            if head is None or head.clean_up == "none" or job_id not in self._asked:
                continue  # or more has to be cleaned up by now than was asked for then
            clean[job_id] = head.model_copy(update={"clean_up": "none"})
        await self._store.heads.put(list(clean.values()))

    async def leftovers(self, found: Iterable[pb.ExchangeFiles], lives: Callable[[str], bool]) -> Leftovers:
        """Return what to remove of the files that an executor *found*, and which jobs it shall report again.

        To be removed: files that late tasks left after the clean-up of their ended jobs, and unfinished files of
        executors that are dead by *lives*, which is given an incarnation. Jobs that are not known here may belong to
        another cluster. While a job is being cleaned up, it is unknown whether its files are those to be removed, or
        have appeared since.
        """
        clean_ups: list[pb.CleanUp] = []
        tell_again: list[JobId] = []
        for each in found:
            job_id = JobId(each.job_id)
            head = self._store.heads.get(job_id)
            if head is None:
                continue
            if not head.is_active and (head.clean_up != "none" or self._store.heads.may_be_read(job_id)):
                tell_again.append(job_id)
                continue
            if head.is_active:
                dead = [writer for writer in each.writers if not lives(writer)]
                if dead:
                    clean_ups.append(pb.CleanUp(job_id=job_id, dead_writers=dead))
                continue
            try:
                job = await self._store.jobs.get(job_id)
            except (JobNotFoundError, StateCorruptError, SchemaVersionError):
                continue
            keeps_result = head.has_result and head.state is JobState.SUCCESSFUL
            clean_ups.append(clean_up_of(job.graph, keeps_result=keeps_result, keeps_stages=head.reusable.values()))
        return Leftovers(clean_ups, tell_again)

    async def forgotten(self, kept: Iterable[str]) -> list[pb.CleanUp]:
        """Return memory clean-ups for those of the jobs *kept* that have ended.

        Files are removed by one executor, but memory is each executor's own.
        """
        return [pb.CleanUp(job_id=job_id, memory_only=True) for job_id in kept if await self._is_over(JobId(job_id))]

    async def _is_over(self, job_id: JobId) -> bool:
        head = self._store.heads.get(job_id)
        if head is None:  # the job is new, or was removed long ago: the store knows
            return await self._store.backend.get(Keyspace.JobHeads, job_id) is None
        return not (
            head.is_active or self._store.heads.is_newer(job_id)
        )  # a scheduler that can read it may go on with it

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in what the head says of the job's files."""
        known = self._due.get(job_id)
        if head is None or head.clean_up == "none":
            self._due.pop(job_id, None)
            self._due_since_s.pop(job_id, None)
        else:
            self._due[job_id] = head
            self._due_since_s.setdefault(job_id, self._env.clock.monotonic_s())
        if known is None or head is None or (known.clean_up, known.reusable) != (head.clean_up, head.reusable):
            self._prepared.pop(job_id, None)
            self._asked.pop(job_id, None)


def clean_up_of(graph: ExecutionGraph, *, keeps_result: bool, keeps_stages: Collection[int] = ()) -> pb.CleanUp:
    """Return the clean-up of an ended job's exchange data: all of it, or all but its result and what others may take.

    With the result go folders of tables that the job has replaced: until then, others may still read them.
    """
    clean_up = pb.CleanUp(job_id=graph.job_id)
    if graph.plan is not None and graph.state is not JobState.SUCCESSFUL:
        clean_up.folders.extend(graph.plan.folders_made)
    elif graph.plan is not None and not keeps_result:
        clean_up.folders.extend(graph.plan.folders_retired)
    if graph.plan is not None and graph.plan.sink is not None:
        clean_up.sink.CopyFrom(wire.sink_message(graph.plan.sink))
        clean_up.take_back = graph.state is not JobState.SUCCESSFUL
    clean_up.keep_files.extend(kept_stage(stage_id) for stage_id in sorted(keeps_stages))
    stage = graph.result_stage
    if keeps_result and stage is not None and stage.spec.output.kind == "result":
        directory = kept_stage(stage.spec.stage_id)
        clean_up.keep_files.extend(
            f"{directory}{result_name(p, o.nonce)}" for p, o in sorted(stage.ledger.outputs.items()) if not o.is_inline
        )
    clean_up.keep_result = bool(clean_up.keep_files)
    return clean_up
