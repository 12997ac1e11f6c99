"""Answers polls: pull executors wait for the answer, push executors are called once there is one."""

import asyncio

import structlog

from onager.errors import OnagerError, UnknownExecutorError
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_key
from onager.scheduler import timing
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.engine.clean_ups import CleanUps
from onager.scheduler.engine.dispatcher import Dispatcher
from onager.scheduler.engine.reconciliation import Reconciler
from onager.scheduler.executors.executor_calls import ExecutorCalls
from onager.scheduler.executors.records import ExecutorSession, Offer
from onager.scheduler.policy.reservations import Launch
from onager.supervision import Background

log = structlog.get_logger(__name__)

_OF_SPECS = (pb.PLAN, pb.PROGRAM)
"""Work that a job's specification says."""


class Polls:
    """The answers to polls: launches, and whatever else executors have to know."""

    def __init__(
        self,
        env: Env,
        store: Store,
        view: ClusterView,
        reconciler: Reconciler,
        dispatcher: Dispatcher,
        clean_ups: CleanUps,
        calls: ExecutorCalls,
    ) -> None:
        self._env = env
        self._store = store
        self._view = view
        self._reconciler = reconciler
        self._dispatcher = dispatcher
        self._clean_ups = clean_ups
        self._calls = calls
        self._waiting = Background()

    async def run(self) -> None:
        """Call executors, for as long as the scheduler lives."""
        await self._waiting.until_defect()

    async def answer(self, session: ExecutorSession, request: pb.PollWorkRequest) -> pb.PollWorkResponse:
        """Return the answer to a poll: what there is to say, once there is, or that the executor will be called."""
        wait_ms = min(request.wait_ms, self._env.settings.poll_wait_max_ms)
        repeated: list[Launch] = []
        is_young = False
        if request.list_number > session.list_number:
            repeated, is_young = await self._reconciler.take_list(
                session, request.list_number, {task_key(t) for t in request.running}
            )
        answer = pb.PollWorkResponse(task_sets=[launch.task_set for launch in repeated])
        await self._add_news(session, answer)
        # A later poll may have overtaken this one while its list was compared; then that poll offers the slots.
        is_latest = request.list_number >= session.list_number
        if is_latest and not (answer.task_sets or answer.cancel or answer.clean_ups):
            if is_young:
                wait_ms = min(wait_ms, int(timing.LAUNCH_YOUNG_S * 1000))  # then a later list tells
            slots = 0 if session.is_draining else min(request.free_slots, session.record.slots)
            offer = self._dispatcher.offer(session, slots)
            if session.record.mode == "push" and wait_ms:
                self._waiting.start("poll of a push executor", self._call(request, offer, wait_ms))
                answer.will_call = True
                return answer
            try:
                await self._dispatcher.wait_for_work(offer, wait_ms / 1000)
            except asyncio.CancelledError:
                self._view.executors.suspect(session)
                raise
            answer.task_sets.extend(offer.launches)
            await self._add_news(session, answer)
        self.add_specs(answer)
        if session.is_gone and not self._view.executors.is_alive(request.executor_id, request.incarnation):
            raise UnknownExecutorError(request.executor_id)
        return answer

    async def _call(self, request: pb.PollWorkRequest, offer: Offer, wait_ms: int) -> None:
        """Call the executor with the answer to its poll, except where it polls again by itself anyway.

        The call is repeated until it is answered, or there is a later poll.
        """
        session = offer.session
        await self._dispatcher.wait_for_work(offer, wait_ms / 1000)
        answer = pb.PollWorkResponse(task_sets=offer.launches)
        if not (answer.task_sets or offer.is_nudged or wait_ms < request.wait_ms):
            return
        await self._add_news(session, answer)
        self.add_specs(answer)
        until_s, pause_s = self._env.clock.monotonic_s() + request.wait_ms / 1000, timing.CALL_FIRST_PAUSE_S
        while not session.is_gone:
            try:
                await self._calls.answer_poll(session.record, request.list_number, answer)
            except UnknownExecutorError:
                return  # that life is over
            except Exception as error:  # noqa: BLE001 - no error of one executor may end the scheduler
                # The answer may have arrived or not, and is taken only once. The next poll's list shows what was lost.
                self._tell_failure(session, error)
                if session.list_number > request.list_number or self._env.clock.monotonic_s() >= until_s:
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(timing.CALL_LONGEST_PAUSE_S, 2 * pause_s)
            else:
                session.call_failed_s = None
                return

    def _tell_failure(self, session: ExecutorSession, error: Exception) -> None:
        now_s = self._env.clock.monotonic_s()
        if session.call_failed_s is not None and now_s - session.call_failed_s < timing.UNREACHED_REPORTED_S:
            return
        session.call_failed_s = now_s
        log.warning(
            "executor_not_called",
            executor_id=session.executor_id,
            address=session.record.address,
            error=str(error),
            exc_info=not isinstance(error, OnagerError),
            advice="it gets its work with its next poll; can its address be reached from here? (its --advertise)",
        )

    async def unwanted(self, session: ExecutorSession, *, is_thrifty: bool = False) -> list[pb.TaskId]:
        """Return the tasks that the executor holds and no graph wants; if *is_thrifty*, not checked every time."""
        if not session.held:
            return []
        return [task_id(key) for key in await self._reconciler.unwanted(session, is_thrifty=is_thrifty)]

    def add_specs(self, answer: pb.PollWorkResponse | pb.ReportTasksResponse) -> None:
        """Add the job specifications that planning tasks and programs would otherwise fetch."""
        for digest in dict.fromkeys(
            task_set.spec_digest for task_set in answer.task_sets if task_set.work in _OF_SPECS
        ):
            content = self._store.blobs.at_hand(digest)
            if content is not None:
                answer.blobs.add(digest=digest, content=content)

    async def _add_news(self, session: ExecutorSession, answer: pb.PollWorkResponse) -> None:
        answer.task_sets.extend(self._reconciler.take_late(session))
        answer.cancel.extend(await self.unwanted(session))
        self._view.executors.add_quarantine(session, answer)
        if not (session.is_draining or session.record.runs_programs):
            answer.clean_ups.extend(self._clean_ups.clean_ups_for(session.executor_id))

    async def close(self) -> None:
        """End the calls in flight: the executors' next lists show what was lost."""
        await self._waiting.close()
