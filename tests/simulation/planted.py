"""Bugs of other systems, planted into the product to check that the simulation finds them.

Each is a patch that lasts as long as one simulation; the product knows nothing of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from onager.errors import StateBackendError
from onager.execution_graph import RunningStage
from onager.execution_graph.attempts import held as _held
from onager.execution_graph.outcomes import on_tasks_succeeded
from onager.execution_graph.stages import RunningTask
from onager.executor.agent.attempts import AttemptTable, Launch
from onager.executor.agent.gateway import SchedulerGateway
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import Reports
from onager.scheduler.cluster import scheduler_calls
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.remote_driver import RemoteDriver
from onager.scheduler.engine import clean_ups
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.engine.polls import Polls
from onager.scheduler.engine.retention import Retention
from onager.scheduler.executors.failure_detector import FailureDetector
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs import job_heads
from onager.scheduler.jobs.audit import Act, Audit
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.held_tasks import HeldTasks
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.reservations import Updated
from onager.state_backend import (
    Delete,
    DeleteRange,
    Keyspace,
)
from onager.state_backend.kept_lease import KeptLease
from tests.simulation.planted_catalogs import OF_CATALOGS
from tests.simulation.planted_feeds import OF_FEEDS
from tests.simulation.planted_layouts import OF_LAYOUTS
from tests.simulation.planted_mechanisms import OF_MECHANISMS
from tests.simulation.planted_programs import OF_PROGRAMS
from tests.simulation.planted_records import OF_RECORDS
from tests.simulation.planted_replans import OF_REPLANS
from tests.simulation.planted_reuse import OF_REUSE
from tests.simulation.planted_scripts import OF_SCRIPTS
from tests.simulation.planted_streaming import OF_STREAMING
from tests.simulation.planted_transactions import OF_TRANSACTIONS
from tests.simulation.planted_watches import OF_WATCHES

_update_job = LocalDriver._update_job
_update_elsewhere = RemoteDriver.update_task_statuses
_accept = AttemptTable.accept
_call = Polls._call
_submit = JobStore.submit
_on_head = JobLoads.on_head
_learn = HeldTasks.learn


def _report_is_acknowledged_before_it_is_stored() -> AbstractContextManager[Any]:
    """A report that could not be stored is acknowledged (X6, X13: it is only in memory)."""

    async def update(self: LocalDriver, job_id: Any, mine: Reports, executor: Any, freed: int) -> Any:
        updated = await _update_job(self, job_id, mine, executor, freed)
        return updated._replace(acknowledged=list(mine))

    return mock.patch.object(LocalDriver, "_update_job", update)


@contextmanager
def _late_report_counts_for_a_newer_attempt() -> Iterator[None]:
    """A report is matched by its partition alone (A16: no guard against late statuses)."""

    def held(stage: RunningStage, partition: int, attempt: int, executor_id: str) -> Any:
        return stage.running.get(partition)

    def is_held(graph: Any, key: Any, executor_id: str) -> bool:
        stage = graph.stages[key.stage_id] if graph.is_active and key.stage_id < len(graph.stages) else None
        return isinstance(stage, RunningStage) and key.partition in stage.running

    with (
        mock.patch("onager.execution_graph.outcomes.held", held),
        mock.patch("onager.scheduler.engine.reports.is_held", is_held),
    ):
        yield


@contextmanager
def _both_attempts_count() -> Iterator[None]:
    """Of two attempts of a partition the loser's output takes the place of the winner's."""

    def held(stage: RunningStage, partition: int, attempt: int, executor_id: str) -> Any:
        found = _held(stage, partition, attempt, executor_id)
        if found is None and partition in stage.ledger.outputs and partition in stage.ledger.speculated:
            return RunningTask(attempt=attempt, executor_id=executor_id, incarnation="", launched_ms=0, list_number=0)
        return found

    def succeeded(graph: Any, events: Any) -> Any:
        with mock.patch("onager.execution_graph.outcomes.held", held):
            return on_tasks_succeeded(graph, events)

    with (
        mock.patch("onager.execution_graph.transitions.on_tasks_succeeded", succeeded),
        mock.patch("onager.execution_graph.scheduling.held", held),
    ):
        yield


@contextmanager
def _a_loser_counts() -> Iterator[None]:
    """A failure counts though another attempt of the partition runs."""
    with (
        mock.patch("onager.execution_graph.outcomes.has_another", return_value=False),
        mock.patch("onager.execution_graph.losses.has_another", return_value=False),
    ):
        yield


def _outputs_of_a_lost_executor_stay() -> AbstractContextManager[Any]:
    """The store still names files on dead executors (X13)."""
    return mock.patch("onager.execution_graph.rollback.outputs_of", return_value=frozenset())


def _lost_launch_is_not_repeated() -> AbstractContextManager[Any]:
    """An answer that was lost leaves its tasks running for ever, where nobody has them (X6)."""
    return mock.patch("onager.scheduler.engine.query_coordinator.lost_launches", return_value=())


def _repeated_launch_runs_twice() -> AbstractContextManager[Any]:
    """An executor starts whatever it is sent, also what it has."""

    def accept(self: AttemptTable, task_set: pb.TaskSet, **how: Any) -> Launch:
        self._held = {key: a for key, a in self._held.items() if key.job_id != task_set.job_id or a.report is not None}
        self._lately.clear()
        self._before.clear()
        return _accept(self, task_set, **how)

    return mock.patch.object(AttemptTable, "accept", accept)


@contextmanager
def _clean_up_while_readers_run() -> Iterator[None]:
    """Files of stages that are done are removed while others read them."""
    due = job_heads._clean_up_due

    def early(graph: Any) -> Any:
        return "all" if graph.is_active and sum(bool(s.ledger.outputs) for s in graph.stages) > 1 else due(graph)

    with mock.patch("onager.scheduler.jobs.job_heads._clean_up_due", early):
        yield


def _result_is_cleaned_up_with_the_rest() -> AbstractContextManager[Any]:
    """The files of a result go when the job ends."""

    def everything(graph: Any, **_: Any) -> pb.CleanUp:
        return pb.CleanUp(job_id=graph.job_id)

    return mock.patch.object(clean_ups, "clean_up_of", everything)


@contextmanager
def _lease_that_ran_out_is_not_reported() -> Iterator[None]:
    """No scheduler reacts when an executor's lease expires or its connection breaks."""

    async def expire_lost(self: FailureDetector) -> None:
        return None

    with (
        mock.patch.object(FailureDetector, "expire_lost", expire_lost),
        mock.patch.object(ExecutorManager, "suspect"),
    ):
        yield


@contextmanager
def _loss_of_the_own_lease_is_not_reported() -> Iterator[None]:
    """A scheduler does not learn that its registration is gone (X1: a lease that silently ran out)."""
    with mock.patch.object(KeptLease, "lose"), mock.patch.object(LiveSchedulers, "_put_if_gone"):
        yield


def _submission_forgets_jobs_that_have_ended() -> AbstractContextManager[Any]:
    """A submission that is repeated late runs the job again (X19's other side)."""

    async def submit(self: JobStore, graph: Any, *more: Any) -> Any:
        backend = self._backend

        class Blind:
            def __getattr__(self, name: str) -> Any:
                return getattr(backend, name)

            async def put_txn(self, ops: Any, *, expect: Any = None, fence: Any = ()) -> Any:
                seen = {k: v for k, v in (expect or {}).items() if k[0] is Keyspace.ActiveJobs}
                return await backend.put_txn(ops, expect=seen, fence=fence)

        self._backend = Blind()  # type: ignore[assignment]
        try:
            return await _submit(self, graph, *more)
        finally:
            self._backend = backend

    return mock.patch.object(JobStore, "submit", submit)


def _accepted_job_is_in_memory_alone() -> AbstractContextManager[Any]:
    """A submission that could not be stored is accepted (X19: it is lost with the scheduler)."""

    async def submit(self: JobStore, graph: Any, *more: Any) -> Any:
        try:
            return await _submit(self, graph, *more)
        except StateBackendError:
            return None, False

    return mock.patch.object(JobStore, "submit", submit)


def _late_report_breaks_the_call() -> AbstractContextManager[Any]:
    """A report of a job that has ended finds no task there, and breaks off (X20: an unwrapped option)."""

    async def update(self: LocalDriver, job_id: Any, mine: Reports, executor: Any, freed: int) -> Any:
        head = self._store.jobs.heads.get(job_id)
        if head is not None and head.state.is_terminal:
            raise KeyError(job_id)
        return await _update_job(self, job_id, mine, executor, freed)

    return mock.patch.object(LocalDriver, "_update_job", update)


def _blob_goes_while_another_job_names_it() -> AbstractContextManager[Any]:
    """The first of two equal jobs to be removed takes the plans of both along."""

    async def release(self: BlobStore, references: Any) -> None:
        for digest in sorted({digest for _, digest in references}):
            await self._backend.put_txn([DeleteRange(Keyspace.Plans, f"{digest}/")])

    return mock.patch.object(BlobStore, "release_all", release)


@contextmanager
def _other_schedulers_are_not_woken() -> Iterator[None]:
    """A scheduler works on what was submitted to itself alone (L10: jobs of the other one starve)."""

    async def adopt(self: LocalDriver, job_id: Any) -> None:
        return None

    def on_head(self: JobLoads, job_id: Any, head: JobHead | None) -> None:
        if head is None or not head.is_active or job_id in self._known:
            _on_head(self, job_id, head)

    with mock.patch.object(LocalDriver, "adopt", adopt), mock.patch.object(JobLoads, "on_head", on_head):
        yield


def _retention_forgets_results() -> AbstractContextManager[Any]:
    """Records go, and what they named stays."""

    async def remove(self: Retention, heads: Any) -> bool:
        for head in heads:
            await self._store.backend.put_txn(
                [Delete(Keyspace.JobHeads, head.job_id), Delete(Keyspace.CompletedJobs, head.job_id)]
            )
        return True

    return mock.patch.object(Retention, "_remove_records", remove)


def _cancels_are_not_recorded() -> AbstractContextManager[Any]:
    """A job is cancelled, and the audit does not tell."""

    @asynccontextmanager
    async def act(*_: Any) -> AsyncIterator[Act]:
        yield Act("")

    return mock.patch.object(Audit, "act", act)


def _audit_stays() -> AbstractContextManager[Any]:
    """The audit outlives its retention."""

    async def sweep_audit(self: Retention) -> None:
        return None

    return mock.patch.object(Retention, "sweep_audit", sweep_audit)


def _poll_waits_for_the_dead() -> AbstractContextManager[Any]:
    """A push executor waits for the scheduler that it has polled, whether that lives or not."""

    async def wait_for_call(self: SchedulerGateway, called: Any, timeout_s: float) -> None:
        await asyncio.wait((called,))

    return mock.patch.object(SchedulerGateway, "wait_for_call", wait_for_call)


def _short_wait_ends_in_silence() -> AbstractContextManager[Any]:
    """A push executor does not learn that its poll has waited for a shorter time than it asked for."""

    async def call(self: Polls, request: pb.PollWorkRequest, offer: Any, wait_ms: int) -> None:
        await _call(self, pb.PollWorkRequest(list_number=request.list_number, wait_ms=wait_ms), offer, wait_ms)

    return mock.patch.object(Polls, "_call", call)


def _forwarded_report_is_acknowledged_before_it_is_stored() -> AbstractContextManager[Any]:
    """A scheduler answers for another one which it could not reach."""

    async def update(self: RemoteDriver, executor: Any, reports: Any, freed: int) -> Any:
        try:
            return await _update_elsewhere(self, executor, reports, freed)
        except NotDrivingError:
            return Updated(list(reports), [], [])

    return mock.patch.object(RemoteDriver, "update_task_statuses", update)


@contextmanager
def _dry_job_stays_dry() -> Iterator[None]:
    """What another scheduler had nothing to do for once gets no slot from this one any more (L10: it starves)."""
    dry: dict[tuple[int, str], None] = {}
    feed = JobLoads._feed

    def on_load(self: JobLoads, job_id: Any, head: Any) -> None:
        load = self._known[job_id]
        if load.seq > 0 and not load.available and not self._ownership.is_mine(job_id):
            dry[id(self), job_id] = None
        if (id(self), job_id) in dry:
            self._known[job_id] = replace(load, available=0)
        feed(self, job_id, head)

    with mock.patch.object(JobLoads, "_feed", on_load):
        yield


def _jobs_take_no_turns() -> AbstractContextManager[Any]:
    """A slot stays with its job while that has no more than others, and those may have nothing at all (L10)."""
    return mock.patch.object(FairQueue, "_has_patience", return_value=True)


@contextmanager
def _cut_call_cancels_its_caller() -> Iterator[None]:
    """What waits for a scheduler that is gone is cancelled with the connection (it ends loops in silence)."""

    async def unless_cut(call: Awaitable[Any], error: Exception) -> Any:
        return await call

    async def call(self: RemoteDriver) -> None:
        parts: list[Any] = []
        try:
            await self._call_with(parts)
        except NotDrivingError as error:
            for part in parts:
                if not part.done.done():
                    part.done.set_exception(error)
        finally:
            for part in parts:
                part.done.cancel()

    with mock.patch.object(scheduler_calls, "unless_cut", unless_cut), mock.patch.object(RemoteDriver, "_call", call):
        yield


def _launches_are_not_noted() -> AbstractContextManager[Any]:
    """Which tasks an executor is believed to hold is known from when the job was read alone."""

    def learn(self: HeldTasks, job_id: Any, graph: Any, events: Any) -> None:
        _learn(self, job_id, graph, None if events is None else ())

    return mock.patch.object(HeldTasks, "learn", learn)


PLANTED: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "forwarded-report-unstored": _forwarded_report_is_acknowledged_before_it_is_stored,
    "dry-job-stays-dry": _dry_job_stays_dry,
    "report-acknowledged-unstored": _report_is_acknowledged_before_it_is_stored,
    "late-report-counts": _late_report_counts_for_a_newer_attempt,
    "both-attempts-count": _both_attempts_count,
    "a-loser-counts": _a_loser_counts,
    "lost-outputs-stay": _outputs_of_a_lost_executor_stay,
    "lost-launch-not-repeated": _lost_launch_is_not_repeated,
    "repeated-launch-runs-twice": _repeated_launch_runs_twice,
    "clean-up-while-readers-run": _clean_up_while_readers_run,
    "result-cleaned-up": _result_is_cleaned_up_with_the_rest,
    "lease-end-not-reported": _lease_that_ran_out_is_not_reported,
    "own-lease-loss-not-reported": _loss_of_the_own_lease_is_not_reported,
    "late-submission-runs-again": _submission_forgets_jobs_that_have_ended,
    "accepted-in-memory": _accepted_job_is_in_memory_alone,
    "late-report-breaks": _late_report_breaks_the_call,
    "shared-blob-goes": _blob_goes_while_another_job_names_it,
    "other-schedulers-not-woken": _other_schedulers_are_not_woken,
    "retention-forgets": _retention_forgets_results,
    "cancels-not-recorded": _cancels_are_not_recorded,
    "audit-stays": _audit_stays,
    "poll-waits-for-the-dead": _poll_waits_for_the_dead,
    "short-wait-in-silence": _short_wait_ends_in_silence,
    "no-turns": _jobs_take_no_turns,
    "cut-call-cancels": _cut_call_cancels_its_caller,
    "launches-not-noted": _launches_are_not_noted,
    **OF_STREAMING,
    **OF_TRANSACTIONS,
    **OF_WATCHES,
    **OF_LAYOUTS,
    **OF_FEEDS,
    **OF_RECORDS,
    **OF_CATALOGS,
    **OF_REPLANS,
    **OF_SCRIPTS,
    **OF_PROGRAMS,
    **OF_REUSE,
    **OF_MECHANISMS,
}
