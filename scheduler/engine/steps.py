"""Has the jobs of scripts' steps run, and records in each script's log what became of them.

All of it follows from what is stored, and may be done again, or by two schedulers at once: the job of a step has an id
that follows from the script's and the step's, and its end is taken into the script's log once. So nothing is lost or
done twice when a scheduler dies between any two of these.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

import structlog

from onager.errors import (
    JobConflictError,
    JobNotFoundError,
    NotFoundError,
    OnagerError,
    SchemaVersionError,
    StateCorruptError,
)
from onager.execution_graph import (
    Cancelled,
    ExecutionGraph,
    Failed,
    Failure,
    FailureKind,
    JobState,
    Stage,
    StepEnded,
    SuccessfulStage,
    child_of,
    deadline_passed,
    running_steps,
)
from onager.ids import BlobDigest, JobId, script_of, step_job_id
from onager.job_settings import reuse_of
from onager.protocol.apart import apart
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.engine.new_jobs import NewJobs
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_heads import JobHead, JobTerms
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_specs import Submission, check_spec, encode_spec
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.jobs.script_specs import spec_of_child
from onager.scheduler.loops import whenever
from onager.waiting import is_set_within

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 16
_OTHERS_TURN_S: Final = 1.0
"""How often is looked at a job that should have ended: another scheduler drives it, and may die, or it publishes."""
_LONGEST_WAIT_S: Final = 60.0
"""The clock may be set."""
_UNREADABLE: Final = (JobNotFoundError, StateCorruptError, SchemaVersionError)


class Steps:
    """The steps of the scripts that this scheduler drives."""

    def __init__(self, env: Env, store: Store, view: ClusterView, new_jobs: NewJobs, local: LocalDriver) -> None:
        self._env = env
        self._store = store
        self._view = view
        self._new_jobs = new_jobs
        self._local = local
        self._waiting: dict[JobId, None] = {}
        """The scripts to look at."""
        self._awaited: dict[JobId, set[JobId]] = {}
        """The jobs that run steps of scripts that have ended, and the retries that wait for them."""
        self._wake = asyncio.Event()
        self._deadlines: dict[JobId, int] = {}
        self._deadline_wake = asyncio.Event()

    # ---------------------------------------------------------------- what makes scripts worth a look

    def on_commit(self, job: StoredJob) -> None:
        """Take in that a job has changed: if it is a script, other steps may have begun."""
        if job.graph.is_script:
            self._look_at([JobId(job.header.job_id)])

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in a job's deadline, or that it has ended: it may be a step's job, or a script with steps that run."""
        self._note_deadline(job_id, head)
        if (script_id := script_of(job_id)) is not None:
            script = self._store.heads.get(script_id)
            has_ended = head is None or not head.is_active
            if has_ended or script is None or not script.is_active:
                self._look_at([script_id])
            if has_ended:
                self._look_at(sorted(self._awaited.pop(job_id, ())))
        elif (head is None or not head.is_active) and self._store.heads.steps_of(job_id):
            self._look_at([job_id])

    def _note_deadline(self, job_id: JobId, head: JobHead | None) -> None:
        if head is None or not head.is_active or not head.deadline_ms:
            self._deadlines.pop(job_id, None)
        elif self._deadlines.get(job_id) != head.deadline_ms:
            self._deadlines[job_id] = head.deadline_ms
            self._deadline_wake.set()

    def look_again(self) -> None:
        """Look at all scripts: this scheduler may drive others than before, or an event may have been missed."""
        found: set[JobId] = set()
        for head in self._store.heads.active():
            script_id = script_of(head.job_id)
            if script_id is not None:
                found.add(script_id)
        for job_id in self._view.ownership.followed:
            job = self._store.jobs.cached(job_id)
            if job is not None and job.graph.is_script:
                found.add(job_id)
        self._look_at(sorted(found))

    def _look_at(self, scripts: Iterable[JobId]) -> None:
        mine = [script_id for script_id in scripts if self._view.ownership.is_mine(script_id)]
        if mine:
            self._waiting |= dict.fromkeys(mine)
            self._wake.set()

    # ---------------------------------------------------------------- loops

    async def run(self) -> None:
        """Look at scripts for as long as the scheduler lives."""
        await whenever(self._wake, self._work_off)

    async def run_deadlines(self) -> None:
        """Fail jobs whose time is over, for as long as the scheduler lives."""
        while True:
            self._deadline_wake.clear()
            wait_s = None
            if self._deadlines:
                left_s = (min(self._deadlines.values()) - self._env.clock.now_ms()) / 1000
                wait_s = min(_LONGEST_WAIT_S, max(_OTHERS_TURN_S, left_s))
            if await is_set_within(self._deadline_wake, wait_s):
                continue
            try:
                await self.pass_deadlines()
            except OnagerError as error:
                log.warning("deadlines_not_passed", error=str(error))

    async def pass_deadlines(self) -> None:
        """Fail those of the jobs that this scheduler drives that should have ended by now."""
        now_ms = self._env.clock.now_ms()
        due = [(job_id, at_ms) for job_id, at_ms in self._deadlines.items() if at_ms <= now_ms]
        for job_id, deadline_ms in due:
            if not self._view.ownership.is_mine(job_id):
                continue
            try:
                await self._store.writers.record_decision(job_id, partial(_late, deadline_ms, now_ms))
            except _UNREADABLE as error:
                log.warning("deadline_not_noted", job_id=job_id, error=str(error))

    async def _work_off(self) -> None:
        while self._waiting:
            some = list(self._waiting)[:_AT_ONCE]
            for script_id in some:
                del self._waiting[script_id]
            results = await asyncio.gather(*(self._advance(script_id) for script_id in some), return_exceptions=True)
            for script_id, error in zip(some, results, strict=True):
                if isinstance(error, OnagerError):
                    self._waiting[script_id] = None
            for error in results:
                if isinstance(error, BaseException):
                    raise error

    # ---------------------------------------------------------------- one script

    async def _advance(self, script_id: JobId) -> None:
        """Do what is due for the script, as it is stored: submit jobs, take in their ends, or stop them."""
        if not self._view.ownership.is_mine(script_id):
            return
        try:
            job = await self._stored(script_id)
        except JobNotFoundError:
            await self._stop_steps(script_id, "its script is gone")
            return
        except (StateCorruptError, SchemaVersionError) as error:
            log.warning("script_not_read", job_id=script_id, error=str(error))
            return
        if not job.graph.is_active:
            await self._stop_steps(script_id, f"its script has ended: it is {job.graph.state}")
            return
        ended: list[StepEnded] = []
        for stage in running_steps(job.graph):
            end = await self._step(job, stage)
            if end is not None:
                ended.append(end)
        if ended:
            await self._store.writers.record_decision(script_id, lambda _: Decision(ended))

    async def _stored(self, script_id: JobId) -> StoredJob:
        if self._view.ownership.follows(script_id):
            return await self._store.jobs.get(script_id)
        return await self._store.jobs.fresh(script_id)

    async def _step(self, job: StoredJob, stage: Stage) -> StepEnded | None:
        """Return the end of a running step if it has ended; see to it that it runs."""
        child_id = self._child_id(job.graph, stage)
        head = self._store.heads.get(child_id)
        if head is not None:
            return None if head.is_active else await self._end(stage, child_id, head)
        before = await self._done_before(job, stage)
        if before is None:
            return await self._submit(job, stage, child_id)
        done_id, rows = before
        if rows is None:
            self._awaited.setdefault(done_id, set()).add(JobId(job.graph.job_id))
            return None
        return StepEnded(stage_id=stage.spec.stage_id, child_id=done_id, rows=rows, at_ms=self._env.clock.now_ms())

    def _child_id(self, graph: ExecutionGraph, stage: Stage) -> JobId:
        return step_job_id(graph.job_id, stage.spec.stage_id)

    async def _submit(self, job: StoredJob, stage: Stage, child_id: JobId) -> StepEnded | None:
        """Submit the job of a step; whoever was first, there is one."""
        assert stage.spec.plan_digest is not None
        try:
            script = await self._store.blobs.get(BlobDigest(job.graph.spec_digest))
            step = await self._store.blobs.get(BlobDigest(stage.spec.plan_digest))
        except (NotFoundError, StateCorruptError) as error:
            return self._failed(stage, child_id, f"what it is to do cannot be read any more: {error}")
        spec = await apart(len(script) + len(step), spec_of_child, script, step, stage.spec.name)
        try:
            check_spec(spec)
        except OnagerError as error:
            return self._failed(stage, child_id, str(error))
        terms = JobTerms(
            weight=job.header.weight,
            session=job.header.session,
            session_max_tasks=job.header.session_max_tasks,
            principal=job.header.principal,
            labels=job.header.labels,
            reuse=reuse_of(spec.conf),
        )
        content = encode_spec(spec)
        submission = Submission(terms, content, digest_of(content))
        try:
            existed = await self._new_jobs.store(child_id, job.graph.client_id, spec, submission, terms)
        except JobConflictError:
            existed = True  # a scheduler of another version has put it in other words
        if not existed:
            log.info("step_submitted", job_id=job.graph.job_id, stage_id=stage.spec.stage_id, child_id=child_id)
        return None

    async def _done_before(self, job: StoredJob, stage: Stage) -> tuple[JobId, int | None] | None:
        """Return the job, and its rows, that did a step for a script that this one is a retry of.

        Then the step is not run again. No rows: that job has not ended, and is to be waited for, because a job that
        publishes is not stopped. None: the step is to be run, because nobody did the same with the same before it, or
        because it only gives the rows of the result: these may be gone.
        """
        stage_id = stage.spec.stage_id
        retry_of = job.header.retry_of
        while retry_of:
            try:
                earlier = await self._store.jobs.fresh(JobId(retry_of))
            except _UNREADABLE:
                return None
            if earlier.graph.state is JobState.SUCCESSFUL or earlier.graph.spec_digest != job.graph.spec_digest:
                return None
            done_id = _done_by(earlier.graph, stage_id)
            head = self._store.heads.get(done_id)
            if script_of(done_id) != earlier.graph.job_id or head is not None:
                return self._done(job.graph, stage, earlier.graph, done_id, head)
            retry_of = earlier.header.retry_of  # that one ended before it came to this step
        return None

    def _done(
        self, graph: ExecutionGraph, stage: Stage, earlier: ExecutionGraph, done_id: JobId, head: JobHead | None
    ) -> tuple[JobId, int | None] | None:
        stage_id = stage.spec.stage_id
        known = earlier.stages[stage_id]
        if known.spec.plan_digest != stage.spec.plan_digest:
            return None
        if any(child_of(graph.stages[i.stage_id]) != _done_by(earlier, i.stage_id) for i in stage.spec.inputs):
            return None
        if isinstance(known, SuccessfulStage):
            rows = known.ledger.outputs[0].rows
        elif head is None or (not head.is_active and (head.broken or head.state is not JobState.SUCCESSFUL)):
            return None
        elif head.is_active:
            return done_id, None
        else:
            rows = head.result_rows
        is_result = graph.plan is not None and graph.plan.result_stage_id == stage_id
        if is_result and rows and head is not None and head.sink_path is None:
            return None
        return done_id, rows

    async def _end(self, stage: Stage, child_id: JobId, head: JobHead) -> StepEnded | None:
        if head.broken is not None:
            if self._store.heads.is_newer(child_id):
                return None  # a newer scheduler goes on with it
            return self._failed(stage, child_id, f"its record cannot be read: {head.broken}")
        if head.state is JobState.SUCCESSFUL:
            return StepEnded(
                stage_id=stage.spec.stage_id, child_id=child_id, rows=head.result_rows, at_ms=self._env.clock.now_ms()
            )
        graph = (await self._store.jobs.fresh(child_id)).graph
        failure = _failure_of(graph)
        return StepEnded(
            stage_id=stage.spec.stage_id, child_id=child_id, rows=0, failure=failure, at_ms=self._env.clock.now_ms()
        )

    def _failed(self, stage: Stage, child_id: JobId, why: str) -> StepEnded:
        failure = Failure(kind=FailureKind.USER_ERROR, message=why)
        return StepEnded(
            stage_id=stage.spec.stage_id, child_id=child_id, rows=0, failure=failure, at_ms=self._env.clock.now_ms()
        )

    async def _stop_steps(self, script_id: JobId, why: str) -> None:
        for child_id in self._store.heads.steps_of(script_id):
            head = self._store.heads.get(child_id)
            if head is None or not head.is_active:
                continue
            try:
                await self._local.coordinator(child_id).cancel_job(why)
                log.info("step_stopped", job_id=script_id, child_id=child_id, why=why)
            except _UNREADABLE as error:
                log.warning("step_not_stopped", job_id=child_id, error=str(error))


def _done_by(graph: ExecutionGraph, stage_id: int) -> JobId:
    """Return the job that did a step of a script, or would have."""
    child_id = child_of(graph.stages[stage_id]) if stage_id < len(graph.stages) else ""
    return JobId(child_id or step_job_id(graph.job_id, stage_id))


def _late(deadline_ms: int, now_ms: int, graph: ExecutionGraph) -> Decision:
    return Decision([deadline_passed(graph, deadline_ms, now_ms)])


def _failure_of(graph: ExecutionGraph) -> Failure:
    """Return why the job of a step did not succeed."""
    match graph.outcome:
        case Failed(failure=failure):
            return failure
        case Cancelled(text=text):
            return Failure(kind=FailureKind.USER_ERROR, message=f"it was cancelled: {text}")
        case outcome:
            raise AssertionError(f"job {graph.job_id} has not failed: {outcome}")
