"""The agent: registers, takes work from schedulers by poll or push, reports outcomes, and leaves.

It holds no truth but which tasks it holds. Any call may be lost or be answered by another scheduler. So launches are
distinguished by their attempt, reports are sent until they are acknowledged, and an executor that no scheduler knows
registers again.
"""

import asyncio
from collections.abc import Coroutine, Iterable

import structlog

from onager.clock import Clock
from onager.errors import OnagerError, UnknownExecutorError
from onager.executor.agent.attempts import AttemptTable
from onager.executor.agent.backoff import Backoff, Pace
from onager.executor.agent.blobs import BlobCache
from onager.executor.agent.catalog import CatalogClient
from onager.executor.agent.clean_ups import CleanUps
from onager.executor.agent.endings import Ending, Outcome, describe_death, until_over
from onager.executor.agent.gateway import SchedulerGateway, tell
from onager.executor.agent.quarantine_notice import QuarantineNotice
from onager.executor.agent.registration import Identity, Registration
from onager.executor.agent.reporting import Reporter
from onager.executor.agent.requests import Requests
from onager.executor.agent.tasks_in_hand import DEATH_NOTICE, TasksInHand
from onager.executor.agent.threads import Threads
from onager.executor.agent.watches import AgentEnv, Watches
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.exchange.seen_places import NO_PLACES, SeenPlaces
from onager.executor.settings import ExecutorSettings
from onager.executor.work import Worker, WorkerEnd
from onager.ids import BlobDigest, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id
from onager.supervision import Background, LoopEndedError
from onager.waiting import is_set_within

_CALL_TIMEOUT_S = 10.0
_CALM_S = 0.05
"""The least average time between polls that are answered at once without a task."""
_POLLS_AT_ONCE = 4
"""This many may follow each other without that pause: a job that ends brings clean-ups, and the next job must find a
poll."""
_LAST_WORDS_S = 5.0
_READ_CHECK_S = 0.5
"""How often a leaving executor asks whether the jobs that read its streams have ended."""


class Agent:
    """One executor's agent; made within a running event loop, and run once."""

    def __init__(
        self,
        settings: ExecutorSettings,
        identity: Identity,
        worker: Worker,
        gateway: SchedulerGateway,
        clock: Clock,
        *,
        address: str = "",
        logs: AttemptLogs | None = None,
        places: SeenPlaces = NO_PLACES,
    ) -> None:
        """Make an agent that polls, or in push mode is called at *address*; *places*: the shared directories."""
        self._settings = settings
        self._identity = identity
        self._worker = worker
        self._gateway = gateway
        self._clock = clock
        self._id = settings.executor_id
        self._log = structlog.get_logger().bind(executor_id=self._id)
        self._threads = Threads(len(places.names))
        self._watches = Watches(
            AgentEnv(settings, identity, worker, clock, self._threads),
            places,
            beat=lambda: self._registration.beat(),  # noqa: PLW0108 - made below
            on_change=self._note_change,
            is_working=lambda: self._attempts.active > 0,
        )
        self._attempts = AttemptTable(settings.slots, clock, self._watches.load.rss_bytes)
        self._quarantine = QuarantineNotice(self._id)
        self._blobs = BlobCache(gateway.fetch_blob, settings.blob_cache_bytes)
        self._registration = self._make_registration(address)
        self._reporter = self._make_reporter()
        self._calls: dict[int, asyncio.Future[pb.PollWorkResponse]] = {}
        """The poll answers that may come as a call, by the number of the poll's list."""
        self._changed = asyncio.Event()
        """Set whenever slots may have become free, or a poll has something else to say."""
        self._draining = asyncio.Event()
        logs = logs or AttemptLogs()
        self._requests = self._make_requests(logs)
        self._is_pressed = asyncio.Event()
        """Set when what runs has only the grace period left: tasks at a signal, not when schedulers drain it."""
        self._must_stop = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._list_number = 0
        self._listed_s = clock.monotonic_s()
        """When the latest list was sent."""
        self._patience: asyncio.Timeout | None = None
        """The timeout of the latest poll."""
        self._pace = Pace(_CALM_S, _POLLS_AT_ONCE)
        self._background = Background(self._fail)
        self._catalog = CatalogClient(gateway, clock, executor_id=self._id, incarnation=identity.incarnation)
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._in_hand = self._make_tasks_in_hand(logs)
        self._clean_ups = CleanUps(self._in_hand.clean_up, self._spawn)
        self._heartbeat_number = 0
        """The number, of `CleanUps`, that goes with the clean-ups in the latest heartbeat."""

    def _make_registration(self, address: str) -> Registration:
        return Registration(
            self._settings,
            self._identity,
            self._gateway,
            held=self._held,
            on_registered=self._take_registration,
            add_places=self._watches.places.add_to,
            add_news=self._add_news,
            on_answer=self._take_heartbeat_answer,
            on_refused=lambda why: self._end(Ending.REFUSED, why),
            address=address,
        )

    def _make_reporter(self) -> Reporter:
        return Reporter(
            self._attempts,
            self._gateway,
            executor_id=self._id,
            incarnation=self._identity.incarnation,
            on_answer=self._take_report_answer,
            on_unknown=self._registration.lose,
            on_silence=self._poll_again,
            list_number=lambda: self._list_number,
            takes_work=lambda: self._takes_work,
            spawn=self._spawn,
        )

    def _make_requests(self, logs: AttemptLogs) -> Requests:
        return Requests(
            self._gateway.access,
            executor_id=self._id,
            incarnation=self._identity.incarnation,
            read_logs=lambda ask: self._threads.logs(logs.answer, ask),
            connect=self._answer_connect,
            is_draining=self._draining.is_set,
            on_drain=self._drain_on_request,
            on_quiet=lambda: self._in_hand.start(),  # noqa: PLW0108 - made later
        )

    def _make_tasks_in_hand(self, logs: AttemptLogs) -> TasksInHand:
        return TasksInHand(
            self._attempts,
            self._worker,
            self._blobs,
            self._clock,
            self._threads,
            executor_id=self._id,
            spawn=self._spawn,
            on_report_due=self._reporter.wake,
            on_no_space=self._watches.space.doubt,
            on_failure=self._watches.places.doubt,
            on_death=lambda why: self._end(Ending.WORKER_DIED, why),
            logs=logs,
            catalog=self._catalog,
            is_quiet=lambda: self._requests.is_quiet,
        )

    # ---------------------------------------------------------------- life

    async def run(self) -> Outcome:
        """Register and work until drained, refused, or until the worker is dead; then deregister and return why.

        `LoopEndedError` when a part has ended that must not.
        """
        loops = {
            "registration": self._registration.register(),
            "heartbeats": self._registration.keep_alive(),
            "polling": self._poll(),
            "offers": self._reporter.offer(),
            "reporting": self._reporter.run(),
            "watch over the worker": self._watch_worker(),
            "space in the exchange": self._watches.space.run(),
            "drain": self._drain(),
            "requests for logs": self._requests.serve_logs(self._await_requests),
        }
        for name, loop in loops.items():
            self._background.keep(name, self._to_the_end(loop))
        self._watches.start(self._background)
        end = None
        try:
            outcome = await self._ended
            if outcome.ending is Ending.WORKER_DIED:
                end = await self._threads.liveness(self._worker.end)
        finally:
            await self._background.close()
            await self._requests.close()
            self._threads.close()
        if outcome.ending is not Ending.REFUSED:
            await self._say_goodbye(outcome.message, end)
        return outcome

    def request_drain(self) -> None:
        """Take no more work, finish the running tasks, and end; a second call stops the running tasks."""
        self._log.info("drain_requested", running=self._attempts.active)
        if self._is_pressed.is_set():
            self._must_stop.set()
        self._is_pressed.set()
        self._begin_to_leave()

    def _drain_on_request(self) -> None:
        """Take no more work, finish the running tasks however long they take, and end; programs go on elsewhere."""
        if not self._draining.is_set():
            self._log.info("drain_requested", running=self._attempts.active, by="a scheduler")
            if self._identity.runs_programs:
                self._is_pressed.set()
            self._begin_to_leave()

    def _begin_to_leave(self) -> None:
        self._draining.set()
        self._registration.announce_drain()
        self._note_change()

    def _end(self, ending: Ending, message: str) -> None:
        if not self._ended.done():
            self._ended.set_result(Outcome(ending, message, was_leaving=self._draining.is_set()))

    async def _say_goodbye(self, reason: str, end: WorkerEnd | None) -> None:
        await self._reporter.flush(_LAST_WORDS_S)
        request = pb.DeregisterExecutorRequest(
            executor_id=self._id, incarnation=self._identity.incarnation, reason=reason
        )
        if end is not None:
            describe_death(request, end, self._attempts, is_quiet=self._requests.is_quiet)
        try:
            await self._gateway.deregister(request, _LAST_WORDS_S)
        except OnagerError as e:
            # Its lease ends it instead.
            tell(self._log, "deregistration_not_delivered", e)

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None] | None":
        if self._ended.done():
            work.close()  # too late: nothing would wait for it
            return None
        return self._background.start(getattr(work, "__qualname__", "work"), work)

    async def _to_the_end(self, loop: Coroutine[None, None, None]) -> None:
        """Run a loop that may return once the agent has ended."""
        await loop
        if self._ended.done():
            await asyncio.Event().wait()

    def _fail(self, defect: LoopEndedError) -> None:
        if not self._ended.done():
            self._ended.set_exception(defect)

    # ---------------------------------------------------------------- polling

    async def _poll(self) -> None:
        """Poll whenever a slot is free, and now and then when none is, since a lost launch may be waited for.

        Even the tasks that hold the slots may wait for it, if a job's stages run together. In push mode a poll always
        waits: it occupies no connection, and its answer stops tasks at once.
        """
        backoff = Backoff(first_s=0.05, limit_s=1.0)
        while True:
            await self._registration.wait_until_registered()
            self._changed.clear()
            if not self._has_to_poll:
                await is_set_within(self._changed, self._next_list_in_s)
                continue
            # An answer to a report may be in flight with launches, and the list must not miss those.
            await self._reporter.wait_until_idle(timeout_s=1.0)
            if not self._has_to_poll:
                continue
            poll = self._spawn(self._poll_and_back_off(backoff))
            if poll is None:
                return
            try:
                async with asyncio.timeout(None) as self._patience:
                    await asyncio.shield(poll)
            except TimeoutError:
                continue  # a scheduler that gets another poll answers the earlier one
            finally:
                self._patience = None

    @property
    def _is_called(self) -> bool:
        return self._settings.mode == "push"

    @property
    def _takes_work(self) -> bool:
        return not self._draining.is_set() and self._watches.places.may_work

    @property
    def _offered_slots(self) -> int:
        return self._attempts.free_slots if self._takes_work else 0

    @property
    def _has_to_poll(self) -> bool:
        return self._is_called or bool(self._offered_slots) or self._next_list_in_s <= 0

    @property
    def _next_list_in_s(self) -> float:
        """Return the seconds until a list is due without a free slot: as often as polls without an answer end."""
        return self._listed_s + self._settings.poll_wait_ms / 1000 - self._clock.monotonic_s()

    async def _poll_and_back_off(self, backoff: Backoff) -> None:
        try:
            await self._poll_once()
        except UnknownExecutorError:
            self._registration.lose()
        except OnagerError as e:
            tell(self._log, "poll_failed", e)
            await backoff.sleep()
        else:
            backoff.reset()

    async def _poll_once(self) -> None:
        requests: list[pb.PollWorkRequest] = []
        number = 0
        called: asyncio.Future[pb.PollWorkResponse] = asyncio.get_running_loop().create_future()

        def ask() -> pb.PollWorkRequest:
            nonlocal number
            cleaned_up, number = self._clean_ups.unreported()
            requests.append(self._poll_request(cleaned_up))
            self._calls[requests[-1].list_number] = called
            return requests[-1]

        timeout_s = self._settings.poll_wait_ms / 1000 + _CALL_TIMEOUT_S
        try:
            with self._reporter.polling():
                first = ask()
                began_s = self._listed_s
                answer = await self._gateway.poll(first, timeout_s, ask)
                self._clean_ups.note_answered(number)
                self._take(answer)
                if answer.will_call:
                    await self._gateway.wait_for_call(called, requests[-1].wait_ms / 1000)
                    answer = called.result() if called.done() else answer
        finally:
            for asked in requests:
                del self._calls[asked.list_number]
        now_s = self._clock.monotonic_s()
        if not answer.task_sets and now_s - began_s < _CALM_S:
            await asyncio.sleep(self._pace.wait_s(now_s))

    def answer_poll(self, request: pb.AnswerPollRequest) -> None:
        """Take the answer to a poll in push mode; `UnknownExecutorError` when it is for another life of this executor.

        `ExecutorService` calls it. It is taken even if the poll no longer waits.
        """
        if (request.executor_id, request.incarnation) != (self._id, self._identity.incarnation) or self._ended.done():
            raise UnknownExecutorError(request.executor_id)
        self._take(request.answer)
        called = self._calls.get(request.list_number)
        if called is not None and not called.done():
            called.set_result(request.answer)

    def _take(self, answer: pb.PollWorkResponse) -> None:
        self._quarantine.note(answer)
        self._keep(answer.blobs)
        self._accept(answer.task_sets)
        self._in_hand.cancel(answer.cancel)
        self._clean_ups.take(answer.clean_ups)

    def _poll_request(self, cleaned_up: list[JobId]) -> pb.PollWorkRequest:
        self._list_number += 1
        self._listed_s = self._clock.monotonic_s()
        free_slots = self._offered_slots
        return pb.PollWorkRequest(
            executor_id=self._id,
            incarnation=self._identity.incarnation,
            free_slots=free_slots,
            list_number=self._list_number,
            running=self._held(),
            wait_ms=self._settings.poll_wait_ms if free_slots or self._is_called else 0,
            cleaned_up=cleaned_up,
        )

    def _poll_again(self) -> None:
        """Poll at once, even if a poll waits: its list shows which launches were lost."""
        if self._patience is not None and self._patience.when() is None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def _take_report_answer(self, answer: pb.ReportTasksResponse) -> None:
        self._keep(answer.blobs)
        self._accept(answer.task_sets)
        self._in_hand.cancel(answer.cancel)
        self._note_change()

    def _held(self) -> list[pb.TaskId]:
        return [task_id(key) for key in self._attempts.held()]

    def _note_change(self) -> None:
        self._changed.set()
        if self._attempts.is_empty:
            self._empty.set()
        else:
            self._empty.clear()

    def _add_news(self, request: pb.HeartbeatRequest) -> None:
        """Add to a heartbeat what is kept on disk and in memory, and what polls would say if they were sent."""
        request.kept_jobs.extend(sorted(self._worker.kept_jobs()))
        request.running.extend(self._held())
        cleaned_up, self._heartbeat_number = self._clean_ups.unreported()
        request.cleaned_up.extend(cleaned_up)
        self._watches.add_to(request, self._attempts.free_slots)

    def _take_registration(self, answer: pb.RegisterExecutorResponse) -> None:
        self._watches.places.take(answer)
        self._reporter.wake()

    def _take_heartbeat_answer(self, answer: pb.HeartbeatResponse) -> None:
        self._quarantine.note(answer)
        self._watches.exchange.note_answered(answer)
        self._watches.places.take(answer)
        self._clean_ups.note_answered(self._heartbeat_number)
        self._in_hand.cancel(answer.cancel)
        self._clean_ups.take(answer.clean_ups)
        self._requests.serve_connect_at(() if self._draining.is_set() or self._attempts.has_lone else answer.connect_at)

    def _answer_connect(self, call: pb.ConnectCall) -> pb.ConnectReply:
        return self._worker.connect(call, self._catalog)

    # ---------------------------------------------------------------- tasks

    def _accept(self, task_sets: Iterable[pb.TaskSet]) -> None:
        self._in_hand.accept(task_sets, is_leaving=self._draining.is_set())
        if self._attempts.has_lone:
            self._requests.serve_connect_at(())  # others serve them until that task has ended
        self._note_change()
        self._in_hand.start()

    def _keep(self, blobs: Iterable[pb.Blob]) -> None:
        for blob in blobs:
            self._blobs.offer(BlobDigest(blob.digest), blob.content)

    # ---------------------------------------------------------------- ends

    async def _watch_worker(self) -> None:
        stuck = await until_over(self._worker, self._threads)
        if not stuck:
            self._end(Ending.WORKER_DIED, DEATH_NOTICE)
            return
        self._log.error("jvm_given_up", reason=stuck, running=[str(key) for key in self._attempts.running()])
        await self._in_hand.wait_until_judged()
        self._end(Ending.WORKER_GIVEN_UP, f"its JVM was ended, because {stuck}")

    async def _drain(self) -> None:
        await self._draining.wait()
        grace_s = self._settings.drain_grace_ms / 1000
        waits = (self._until_unneeded(), self._must_stop.wait(), self._is_pressed.wait())
        done, stop, pressed = (asyncio.create_task(wait) for wait in waits)
        try:
            await asyncio.wait([done, stop, pressed], return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                await asyncio.wait([done, stop], timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (stop, pressed, done):
                wait.cancel()
        if self._empty.is_set():
            if jobs := self._worker.streamed_jobs():
                self._log.warning("streams_given_up", jobs=sorted(jobs), grace_s=grace_s)
            self._end(Ending.DRAINED, "drained")
            return
        self._log.warning("drain_cut_short", running=self._attempts.active, grace_s=grace_s)
        self._in_hand.cancel(self._held())
        await is_set_within(self._empty, _LAST_WORDS_S)
        self._end(Ending.STOPPED, "stopped while tasks were running")

    async def _await_requests(self, request: pb.AwaitRequestsRequest, timeout_s: float) -> pb.AwaitRequestsResponse:
        await self._registration.wait_until_registered()
        return await self._gateway.await_requests(request, timeout_s)

    async def _until_unneeded(self) -> None:
        """Wait until nothing is held, and no running job reads what was streamed here: it would begin again.

        The answers to heartbeats tell which jobs have ended.
        """
        await self._empty.wait()
        while self._worker.streamed_jobs():
            self._registration.beat()
            await asyncio.sleep(_READ_CHECK_S)
            await self._empty.wait()
