"""One scheduler: its life, its loops, and what follows from changes."""

import asyncio
from typing import Final

from onager.clock import Clock
from onager.ids import JobId, script_of
from onager.scheduler import timing
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.loops import every, whenever
from onager.scheduler.parts import SchedulerParts
from onager.scheduler.settings import SchedulerSettings
from onager.state_admin.restoring import check_no_restore_pending
from onager.state_backend import StateBackendClient
from onager.supervision import run_loops

_ROUND_LOOK_S: Final = 5.0
_PROGRAMS_LOOK_S: Final = 1.0


class SchedulerApp(SchedulerParts):
    """A scheduler that runs."""

    def __init__(self, settings: SchedulerSettings, backend: StateBackendClient, clock: Clock) -> None:
        super().__init__(settings, backend, clock)
        self._clean_wake = asyncio.Event()
        self.jobs.listen(self._on_commit)
        self.heads.listen(self._on_head)
        self.loads.listen(self._on_load)
        self.schedulers.listen(self._on_schedulers)

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Read heads, executors, and the jobs to continue.

        `SchemaVersionError` for a newer store; `StateCorruptError` for a store with an unfinished restore.
        """
        await check_no_restore_pending(self._backend)
        await self.heads.refresh(is_strict=True)
        await self.schedulers.refresh()
        await self.scheduler_watch.set_clock()
        await self.executors.start()
        await self.adoption.begin()
        self.steps.look_again()

    async def run(self) -> None:
        """Run the loops until cancelled; `LoopEndedError` when one has ended, since every loop is needed."""
        await run_loops(
            schedulers=self.schedulers.run(),
            heads=self.heads.run(),
            executors=self.executors.run(),
            places=self.places.run(),
            dispatcher=self.dispatcher.run(),
            forwarding=self.forwarding.run(),
            scheduler_watch=self.scheduler_watch.run(),
            reconciler=self.reconciler.run(),
            lists_again=self.reconciler.run_again(),
            checks=every(self.settings.speculation_interval_ms / 1000, self.checks.check_all),
            steps=self.steps.run(),
            deadlines=self.steps.run_deadlines(),
            polls=self.polls.run(),
            quarantine=self.quarantine.run(),
            webhooks=self.webhooks.run(),
            audit=self.notes.run(),
            tracing=self.tracing.run(self.exports.timelines),
            adoption=self.adoption.run(),
            cleaning=whenever(self._clean_wake, self._clean),
            sweep=every(self.settings.sweep_interval_ms / 1000, self.sweep),
            connect=every(_ROUND_LOOK_S, self._sweep_connect),
            programs=every(_PROGRAMS_LOOK_S, self.hosted.close_ended),
        )

    def release_polls(self) -> None:
        """Answer the calls that wait, so that executors turn to another scheduler, and the other schedulers know."""
        self.dispatcher.nudge(lambda _: True)
        self.for_schedulers.release()
        self.requests.close()

    async def close(self) -> None:
        """Finish the writes in flight."""
        await self.writers.close()
        await self.notes.store()
        await self.polls.close()
        await self.calls.close()
        await self.forwarding.close()
        await self.wall_times.close()

    # ---------------------------------------------------------------- what follows from changes, in order

    def _on_commit(self, job: StoredJob, head: JobHead) -> None:
        """A job is known here as it is stored now, whoever changed it."""
        job_id = JobId(head.job_id)
        self.local.on_commit(job, head)
        self.checks.on_commit(job, head)
        if job.graph.is_active:
            self.ownership.read(job_id)
        else:
            self.ownership.ended(job_id)
            self.live.forget(job_id)
            self._stop_tasks_of(job_id)
        self.loads.on_commit(job, head)
        self.steps.on_commit(job)
        self._changed(job_id)

    def _changed(self, job_id: JobId) -> None:
        """Have those look who watch the job, or the script of which it is a step."""
        self.watchers.changed(job_id)
        if (script_id := script_of(job_id)) is not None:
            self.watchers.changed(script_id)

    def _on_load(self, job_id: JobId) -> None:
        """A job has more or less work to be launched."""
        self.watchers.changed(job_id)
        self._wake_for_tasks()

    def _on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """The head of a job has changed in the store, or is gone."""
        for part in (self.checks, self.clean_ups, self.retention, self.hosted):
            part.on_head(job_id, head)
        for each in self._deliveries:
            each.on_head(job_id, head)
        self._changed(job_id)
        cached = self.jobs.cached(job_id)
        if head is None or not head.is_active:
            self.ownership.ended(job_id)
            self.local.forget(job_id)
            self.live.forget(job_id)
            if head is None or (cached is not None and cached.graph.is_active):
                self.jobs.forget(job_id)  # another scheduler ended it
            self._stop_tasks_of(job_id)
        else:
            self.adoption.look_at(job_id, head)
        self.loads.on_head(job_id, head)
        self.steps.on_head(job_id, head)
        self.reuse.on_head(job_id, head)
        self.caches.on_head(job_id, head)
        if head is not None and head.clean_up != "none":
            self._clean_wake.set()

    def _on_schedulers(self) -> None:
        """A scheduler has come or gone: some jobs may have another driver."""
        self.scheduler_watch.on_schedulers()
        if self.ownership.on_schedulers():
            self.reconciler.begin_again()
            self.adoption.look_again()
            self.steps.look_again()
            self.dispatcher.wake()

    # ---------------------------------------------------------------- loops

    async def _clean(self) -> None:
        await asyncio.sleep(timing.CLEAN_UPS_TOGETHER_S)
        if await self.clean_ups.prepare():
            self.dispatcher.nudge(
                lambda session: not (session.is_draining or session.is_gone or session.record.runs_programs), at_most=1
            )

    async def _sweep_connect(self) -> None:
        await self.spark_connect.sweep_in_turn(self.rounds)

    async def sweep(self) -> None:
        """Look for work that no event announced.

        Stray tasks, jobs without a driver, clean-ups to ask for again, and what is past its retention.
        """
        await self.jobs.mend_heads()
        await self.adoption.adopt_all()
        self.steps.look_again()
        if not self.precedence.is_alone:
            await self.local.catch_up()  # another scheduler may have changed a job in our place, and no event followed
        if strays := self.local.strays(self.executors.is_alive):
            await self.executors.refresh()  # jobs read since then may name executors that registered later
            for executor_id, incarnation in strays:
                if not self.executors.is_alive(executor_id, incarnation):
                    await self.executors.declare_lost(executor_id, incarnation, "it is not registered any more")
        await self.calls.close_gone(self.executors.is_alive)
        await self.caches.tidy()
        await self.retention.sweep()
        await self.retention.sweep_audit()
        await self.retention.limit_audit()
        await self.retention.collect_orphans()
        self._clean_wake.set()
        if self.clean_ups.has_clean_ups:
            self.dispatcher.nudge(lambda session: not session.is_draining)
        self.dispatcher.wake()
