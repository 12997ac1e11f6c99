"""Two replicas, each acting on some jobs: what the other one has of them in hand is handed over."""

import asyncio
from collections import Counter

import pytest

from execution_graph import ExecutorLost, ExecutorSlot, RunningStage
from onager.ids import JobId, SchedulerId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.task_keys import task_id, task_key, task_keys
from scheduler.jobs.blobs import digest_of
from scheduler.jobs.job_heads import JobTerms
from scheduler.jobs.job_writers import Decision
from scheduler.replica import Replica
from scheduler.replicas import rendezvous
from scheduler.replicas.peer_calls import PASSED_OVER_S
from scheduler.settings import SchedulerSettings
from scheduler.tasks import job_loads
from scheduler.tasks.job_actor import NotActingError
from scheduler.tasks.list_comparison import YOUNG_S
from scheduler.tasks.reservations import ExecutorReservation
from state_backend import Keyspace
from state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.world import graph, planned, session_of

HERE, THERE = SchedulerId("here"), SchedulerId("there")
SLOT = ExecutorSlot("e1", "life", 1)


def job_of(scheduler_id, number=0):
    """Return the id of a job that the replica acts on."""
    names = (f"job-{n}" for n in range(1_000))
    return JobId([n for n in names if rendezvous.first(n, [HERE, THERE]) == scheduler_id][number])


class Pair:
    """Two replicas whose loops do not run; they reach each other as `fate` says: "ok", "silent" or "answer lost"."""

    def __init__(self, clock):
        memory = MemoryStore(clock)
        self.clock = clock
        self.replicas = {
            scheduler_id: Replica(
                SchedulerSettings(exchange_dir="/x", scheduler_id=scheduler_id, listen="127.0.0.1:1"),
                MemoryBackend(memory),
                clock,
            )
            for scheduler_id in (HERE, THERE)
        }
        self.here, self.there = self.replicas.values()
        self.fate = "ok"
        self.calls = []

    async def start(self):
        for replica in self.replicas.values():
            await replica._backend.put(Keyspace.Schedulers, replica.peers.id, replica.peers.record.encoded())
        for replica in self.replicas.values():
            await replica.start()
            replica.others._calls.forward = self.forward

    async def forward(self, scheduler_id, request):
        self.calls.append(request)
        sent = pb.ForwardRequest.FromString(request.SerializeToString())
        if self.fate == "silent":
            raise NotActingError("silent")
        answer = await self.replicas[scheduler_id].for_replicas.Forward(sent, None)
        if self.fate == "answer lost":
            raise NotActingError("lost")
        return pb.ForwardResponse.FromString(answer.SerializeToString())

    async def settle(self):
        """Let each replica hear of what the other one has written and has to tell."""
        for replica in self.replicas.values():
            await replica.heads.refresh()
            await replica.adoption.adopt_all()
            for actor in replica.others.actors().values():
                await actor.tell()
        for replica in self.replicas.values():
            for actor in replica.others.actors().values():
                await actor.tell()

    async def run_job(self, job_id, tasks, *, at_ms=1, terms=None):
        """Submit a job and have it planned by whoever acts on it: *tasks* wait."""
        actor = self.replicas[rendezvous.first(job_id, [HERE, THERE])]
        await actor.jobs.submit(graph(job_id, at_ms=at_ms), terms)
        await actor.local.fill(job_id, [ExecutorReservation.of(SLOT)])
        await actor.writers.record(job_id, lambda _: Decision([planned(tasks)]))
        await self.settle()

    async def fill(self, slots, replica=None):
        replica = replica or self.here
        filled = await replica.tasks.fill_reservations([ExecutorReservation.of(SLOT)] * slots)
        return [key for launch in filled.launches for key in task_keys(launch.task_set)]

    async def finish(self, keys, replica=None):
        """Report *keys* to a replica as successful, and return the tasks that took their slots."""
        replica = replica or self.here
        updated = await replica.tasks.update_task_statuses(SLOT, list(map(report, keys)), len(keys))
        assert set(updated.acknowledged) == set(keys)
        launches = list(updated.launches)
        if updated.reservations:
            launches += (await replica.tasks.fill_reservations(updated.reservations)).launches
        return [key for launch in launches for key in task_keys(launch.task_set)]

    async def stored(self, job_id):
        return (await self.here.jobs.load(job_id)).graph.stages[1]

    def running(self, job_id):
        stage = self.replicas[rendezvous.first(job_id, [HERE, THERE])].jobs.cached(job_id).graph.stages[1]
        return len(stage.running) if isinstance(stage, RunningStage) else 0


def report(key):
    output = pb.TaskOutput(nonce=f"n{key.partition}", executor_id="e1", shared=True, rows=1, bytes=1)
    return pb.TaskReport(task=task_id(key), success=pb.TaskSuccess(output=output))


@pytest.fixture
async def pair(clock):
    made = Pair(clock)
    await made.start()
    yield made
    for replica in made.replicas.values():
        await replica.close()


# ---------------------------------------------------------------- handing over


async def test_a_slot_and_a_report_go_to_whoever_acts_on_the_job(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    appends = pair.there.writers.appends
    first = await pair.fill(2)
    assert [key.partition for key in first] == [0, 1]
    assert [key.partition for key in await pair.finish(first)] == [2, 3]
    assert pair.there.writers.appends == appends + 2
    assert pair.here.writers.appends == pair.there.writers.conflicts == 0
    assert pair.here.queue.running(job_id) == 2, "the answer tells how much there is to do"


async def test_jobs_of_one_replica_go_in_one_call(pair):
    jobs = [job_of(THERE, 0), job_of(THERE, 1)]
    for job_id in jobs:
        await pair.run_job(job_id, 4)
    keys = await pair.fill(4)
    assert Counter(key.job_id for key in keys) == {jobs[0]: 2, jobs[1]: 2}
    pair.calls.clear()
    assert len(await pair.finish(keys)) == 4
    assert len(pair.calls) == 1


async def test_what_a_replica_acts_on_itself_is_told_to_nobody(pair):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 3)
    pair.calls.clear()
    await pair.finish(await pair.fill(2))
    assert pair.calls == []


async def test_a_follower_keeps_no_graph_of_its_own(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    await pair.finish(await pair.fill(2))
    await pair.settle()
    assert pair.here.jobs.cached(job_id) is None
    assert pair.there.acting.follows(job_id)
    assert not pair.here.acting.follows(job_id)


# ---------------------------------------------------------------- no answer


@pytest.mark.parametrize("fate", ["silent", "answer lost"])
async def test_a_report_without_an_answer_is_applied_by_whoever_has_it(pair, fate):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(2)
    pair.fate = fate
    await pair.finish(keys)
    ledger = (await pair.stored(job_id)).ledger
    assert sorted(ledger.outputs) == [0, 1]
    assert [ledger.success_count(p) for p in (0, 1)] == [1, 1]


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_launch_whose_answer_was_lost_is_found_by_the_list(pair, monkeypatch, is_first):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    pair.fate = "answer lost"
    here = await pair.fill(1)
    assert [key.partition for key in here] == [1], "the other replica has handed out the first, unheard"
    pair.fate = "ok"
    asked = session_of(list_number=1)
    asked.list_number = 0 if is_first else 1
    asked.held[here[0]] = 0.0
    launches, _ = await pair.here.lists.take(asked, 2, set(here))
    found = [launch.task_set for launch in launches]
    assert bool(found) == is_first, "the first list of an executor is told at once, any other within a second"
    monkeypatch.setattr(pair.here.lists, "_sessions", lambda: [asked])
    await pair.here.lists.compare_all()
    found += asked.late_task_sets
    assert [key.partition for task_set in found for key in task_keys(task_set)] == [0]
    assert (await pair.stored(job_id)).running[0].lost_launches == 1


async def with_a_launch_that_waits_for_a_poll(pair, monkeypatch):
    """Return a job of two tasks, and the session of an executor that is to hear of the lost launch of the first."""
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    pair.fate = "answer lost"
    await pair.fill(1)
    pair.fate = "ok"
    asked = session_of(list_number=2)  # which does not have it; the poll was answered with something else
    monkeypatch.setattr(pair.here.lists, "_sessions", lambda: [asked])
    await pair.here.lists.compare_all()
    assert [task_set.stage_id for task_set in asked.late_task_sets] == [1]
    pair.clock.advance(int(2 * YOUNG_S * 1000))
    return job_id, asked


async def test_a_launch_that_waits_for_a_poll_is_not_given_to_another_by_the_list_of_that_poll(pair, monkeypatch):
    job_id, asked = await with_a_launch_that_waits_for_a_poll(pair, monkeypatch)
    await pair.here.lists.take(asked, 3, set())
    await pair.here.lists.compare_all()
    running = (await pair.stored(job_id)).running
    assert [task.attempt for task in running.values()] == [0], "it goes with the answer to that very poll"
    delivered = [key for task_set in pair.here.lists.take_late(asked) for key in task_keys(task_set)]
    assert [key.task_attempt for key in delivered] == [0]
    await pair.here.lists.take(asked, 4, set())
    await pair.here.lists.compare_all()
    assert (await pair.stored(job_id)).running, "it is on its way"
    pair.clock.advance(int(2 * YOUNG_S * 1000))
    await pair.here.lists.take(asked, 5, set())
    await pair.here.lists.compare_all()
    assert not (await pair.stored(job_id)).running, "that answer was lost, too"


async def test_a_launch_that_waits_is_not_delivered_once_others_have_had_lists_without_it(pair, monkeypatch):
    job_id, asked = await with_a_launch_that_waits_for_a_poll(pair, monkeypatch)
    elsewhere = session_of(list_number=3)
    await pair.there.local.compare(elsewhere.slot, [], disproves=True)
    assert not (await pair.stored(job_id)).running, "another attempt runs somewhere"
    await pair.here.lists.take(asked, 4, set())
    assert pair.here.lists.take_late(asked) == []


async def test_a_list_disproves_nothing_while_the_answer_to_the_one_before_is_awaited(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    pair.fate = "answer lost"
    await pair.fill(1)
    pair.fate = "ok"
    asked = session_of(list_number=2)
    monkeypatch.setattr(pair.here.lists, "_sessions", lambda: [asked])
    forward, is_held, go_on = pair.forward, asyncio.Event(), asyncio.Event()

    async def slow(scheduler_id, request):
        answer = await forward(scheduler_id, request)
        if not is_held.is_set():
            is_held.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(pair.here.others._calls, "forward", slow)
    first = asyncio.create_task(pair.here.lists.compare_all())
    await is_held.wait()
    asked.list_number = 3
    await pair.here.lists.compare_all()
    go_on.set()
    await first
    assert (await pair.stored(job_id)).running, "its launch was in the answer to the list before"
    assert asked.late_task_sets


async def test_a_list_says_nothing_of_launches_that_are_on_their_way(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    await pair.there.local.fill(job_id, [ExecutorReservation.of(SLOT)])
    pair.here.others.actors()[THERE]._busy["e1"] += 1
    launches, _ = await pair.here.lists.take(session_of(list_number=1), 2, set())
    assert launches == []


async def test_a_silent_replica_is_passed_over_for_a_while(pair, monkeypatch):
    calls = pair.here.others._calls
    del calls.forward  # the real one, to an address where nobody listens
    assert calls.answers(THERE)
    with pytest.raises(NotActingError, match="there"):
        await calls.forward(THERE, pb.ForwardRequest())
    assert not calls.answers(THERE)
    assert pair.here.others.actor_of(job_of(THERE)) is None
    pair.clock.advance(int(PASSED_OVER_S * 1000) + 1)
    assert calls.answers(THERE)
    assert pair.here.others.actor_of(job_of(THERE)) is not None


async def test_reports_that_the_other_replica_could_not_store_are_stored_here(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(1)

    async def broken(*_, **__):
        raise OSError("no store")

    monkeypatch.setattr(pair.there.jobs, "commit", broken)
    await pair.finish(keys)
    assert sorted((await pair.stored(job_id)).ledger.outputs) == [0]


async def test_a_task_of_a_job_that_ended_elsewhere_is_not_wanted_any_more(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1)
    asked = session_of(list_number=1)
    asked.held = dict.fromkeys(keys, 0.0)
    assert await pair.here.lists.unwanted(asked) == []
    await pair.there.local.coordinator(job_id).cancel("enough")
    await pair.here.lists.compare_all()
    await pair.here.heads.refresh()
    assert await pair.here.lists.unwanted(asked) == keys
    assert pair.here.jobs.cached(job_id) is None, "the head says enough: the job need not be read"


async def test_who_acts_says_which_tasks_nobody_wants(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1)
    asked = session_of(list_number=1)
    asked.held = dict.fromkeys(keys, 0.0)
    monkeypatch.setattr(pair.here.lists, "_sessions", lambda: [asked])
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=2)
    await pair.there.local.lose_executor(lost)
    await pair.here.lists.compare_all()
    assert await pair.here.lists.unwanted(asked) == keys
    assert await pair.here.lists.unwanted(asked) == [], "once told, it is said again only when it is still held"


# ---------------------------------------------------------------- who acts changes


async def test_a_replica_that_is_left_alone_goes_on_with_all_jobs_at_once(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    (key,) = await pair.fill(1)
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=2)
    pair.here.executors._losses._recent["e1", "life"] = (pair.clock.monotonic_s(), lost)
    heard = []
    pair.here.acting.listen(lambda: heard.append(pair.here.acting.who(job_id)))
    await pair.here._backend.delete(Keyspace.Schedulers, THERE)
    await pair.here.peers.refresh()
    assert heard == [HERE]
    await pair.here.adoption.adopt_all()
    assert pair.here.acting.follows(job_id)
    stage = pair.here.jobs.cached(job_id).graph.stages[1]
    assert not stage.running, "what the lost executor ran waits again"
    assert stage.ledger.next_attempt(key.partition) == 1


async def test_who_acts_no_more_reads_before_it_writes(pair):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(2)
    await pair.there.local.fill(job_id, [ExecutorReservation.of(SLOT)])
    await pair.here.peers.leave(0.1)
    assert pair.here.acting.who(job_id) == THERE
    assert not pair.here.acting.follows(job_id)
    pair.fate = "silent"
    await pair.finish(keys)
    assert pair.here.writers.conflicts == 0
    assert len((await pair.stored(job_id)).running) == 1


# ---------------------------------------------------------------- fair shares


async def test_a_waiting_job_of_another_replica_gets_its_share_as_tasks_end(pair):
    old, new = job_of(HERE), job_of(THERE)
    await pair.run_job(old, 100)
    keys = await pair.fill(4)
    assert Counter(key.job_id for key in keys) == {old: 4}
    await pair.run_job(new, 100, at_ms=2)
    for _ in range(3):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
    assert Counter(key.job_id for key in keys) == {old: 2, new: 2}
    for _ in range(10):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
        assert Counter(key.job_id for key in keys) in ({old: 2, new: 2}, {old: 3, new: 1}, {old: 1, new: 3})


async def test_it_gets_its_share_also_where_its_own_replica_hears_of_no_report(pair):
    """All executors talk with the replica of the old job, and all reports are of that."""
    old, new = job_of(THERE), job_of(HERE)
    await pair.run_job(old, 100)
    keys = await pair.fill(4, pair.there)
    await pair.run_job(new, 100, at_ms=2)
    for _ in range(8):
        keys = keys[1:] + await pair.finish(keys[:1], pair.there)
        await pair.settle()
    assert set(Counter(key.job_id for key in keys).values()) == {2}


async def test_weights_hold_between_jobs_of_two_replicas(pair):
    heavy, light = job_of(HERE), job_of(THERE)
    await pair.run_job(heavy, 100, terms=JobTerms(weight=3.0))
    await pair.run_job(light, 100, terms=JobTerms(weight=1.0), at_ms=2)
    keys = await pair.fill(8)
    assert Counter(key.job_id for key in keys) == {heavy: 6, light: 2}
    for _ in range(12):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
    assert Counter(key.job_id for key in keys)[heavy] in (5, 6, 7)


async def test_a_session_keeps_to_its_limit_over_two_replicas(pair):
    terms = JobTerms(session="s", session_max_tasks=3)
    jobs = [job_of(HERE), job_of(THERE)]
    for job_id in jobs:
        await pair.run_job(job_id, 50, terms=terms)
    keys = await pair.fill(8)
    await pair.settle()
    assert len(keys) == 3
    for _ in range(10):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
        assert sum(map(pair.running, jobs)) <= 4
    assert sum(map(pair.running, jobs)) >= 2, "and it does not starve"


async def test_a_session_keeps_to_its_limit_exactly_where_one_replica_acts(pair):
    terms = JobTerms(session="s", session_max_tasks=3)
    jobs = [job_of(HERE, 0), job_of(HERE, 1)]
    other = job_of(HERE, 2)
    for job_id in jobs:
        await pair.run_job(job_id, 50, terms=terms)
    await pair.run_job(other, 50, terms=JobTerms(session="other"), at_ms=3)
    keys = await pair.fill(8)
    assert len([key for key in keys if key.job_id != other]) == 3
    for _ in range(10):
        keys = keys[2:] + await pair.finish(keys[:2])
        assert sum(map(pair.running, jobs)) <= 3
        assert len(keys) == 8, "the other session takes what is left"


async def test_slots_kept_while_a_report_is_stored_are_for_all_of_the_session_again(pair):
    job_id, waiting = job_of(HERE, 0), job_of(HERE, 1)
    for each in (job_id, waiting):
        await pair.run_job(each, 50, terms=JobTerms(session="s", session_max_tasks=2))
    keys = await pair.fill(1)
    pair.here.dispatcher._wake.clear()
    assert len(await pair.finish(keys)) == 1
    assert pair.here.queue.has_runnable
    assert pair.here.dispatcher._wake.is_set(), "a slot may be free that nobody had use for"


async def test_a_session_is_counted_when_the_next_task_is_chosen_and_not_when_the_report_came(pair, monkeypatch):
    limited, other = job_of(HERE, 0), job_of(HERE, 1)
    await pair.run_job(limited, 50, terms=JobTerms(session="s", session_max_tasks=1))
    (key,) = await pair.fill(1)
    await pair.run_job(other, 50, terms=JobTerms(session="s"), at_ms=2)
    read = pair.here.local._reader.read

    async def read_slowly(*given):
        assert [k.job_id for k in await pair.fill(1)] == [other]
        return await read(*given)

    monkeypatch.setattr(pair.here.local._reader, "read", read_slowly)
    assert [k.job_id for k in await pair.finish([key])] == [other]
    assert (pair.running(limited), pair.running(other)) == (0, 2)


# ---------------------------------------------------------------- what is known of other replicas' jobs


async def test_a_job_that_had_nothing_to_do_is_asked_again_when_its_head_is_newer(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    (key,) = await pair.fill(1)
    assert not pair.here.queue.has_runnable
    await pair.here.heads.refresh()
    assert not pair.here.queue.has_runnable, "the head is that of the answer"
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=2)
    await pair.there.local.lose_executor(lost)
    await pair.here.heads.refresh()
    assert pair.here.queue.has_runnable
    assert [k.task_attempt for k in await pair.fill(1)] == [key.task_attempt + 1]


async def test_what_is_told_late_changes_nothing(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 9)
    told = pair.there.loads.of([job_id])
    await pair.fill(2)
    assert pair.here.queue.running(job_id) == 2
    pair.here.loads.take(told)
    assert pair.here.queue.running(job_id) == 2


async def test_loads_are_told_once(pair):
    await pair.run_job(job_of(THERE), 9)
    pair.calls.clear()
    await pair.settle()
    assert pair.calls == []
    await pair.there.local.fill(job_of(THERE), [ExecutorReservation.of(SLOT)])
    await pair.there.others.actors()[HERE].tell()
    assert [load.running for call in pair.calls for load in call.loads] == [1]
    assert pair.here.queue.running(job_of(THERE)) == 1


# ---------------------------------------------------------------- executors that report to who acts


class Peer:
    """The caller's end of a connection, for a service that is called without one."""

    def peer(self):
        return "ipv4:192.0.2.1:1"


async def register(pair):
    """Register e1 with the replica here, which it polls."""
    request = pb.RegisterExecutorRequest(
        executor_id="e1",
        incarnation="life",
        slots=4,
        protocol_version=PROTOCOL_VERSION,
        spark_version="4.3.0",
        python_version="3.11",
        exchange_dir="/x",
    )
    await pair.here.executors.register(request, "ipv4:192.0.2.1:1")
    await pair.there.executors.refresh()


def reported(keys, **more):
    return pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=map(report, keys), **more)


async def test_launches_say_where_they_are_to_be_reported_where_that_matters(pair):
    here, there = job_of(HERE), job_of(THERE)
    await pair.run_job(here, 4)
    await pair.run_job(there, 4)
    filled = await pair.here.tasks.fill_reservations([ExecutorReservation.of(SLOT)] * 4)
    addresses = {key.job_id: t.task_set.reply_to for t in filled.launches for key in task_keys(t.task_set)}
    assert addresses == {j: pair.replicas[r].peers.record.address for j, r in ((here, HERE), (there, THERE))}
    await pair.here._backend.delete(Keyspace.Schedulers, THERE)
    await pair.here.peers.refresh()
    filled = await pair.here.tasks.fill_reservations([ExecutorReservation.of(SLOT)])
    assert [launch.task_set.reply_to for launch in filled.launches] == [""], "alone, any address leads here"


async def test_who_helps_out_does_not_name_itself(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    pair.fate = "silent"
    filled = await pair.here.tasks.fill_reservations([ExecutorReservation.of(SLOT)])
    assert [launch.task_set.reply_to for launch in filled.launches] == [""]


async def test_a_report_to_who_acts_is_handed_on_to_nobody_and_its_slot_is_filled(pair):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1)
    pair.calls.clear()
    answer = await pair.there.gateway.ReportTasks(reported(keys, freed_slots=1, list_number=3), Peer())
    assert list(map(task_key, answer.acknowledged)) == keys
    (launched,) = answer.task_sets
    assert pair.calls == []
    assert launched.reply_to == pair.there.peers.record.address
    assert (await pair.stored(job_id)).running[1].list_number == 3, "list 3, that is elsewhere, cannot have it"
    answer = await pair.there.gateway.ReportTasks(reported(task_keys(launched), freed_slots=1, list_number=3), Peer())
    assert (list(answer.task_sets), answer.credited_slots) == ([], 0), "no poll waits there: the executor tells"


async def test_a_list_does_not_disprove_what_who_acts_has_launched_meanwhile(pair, monkeypatch):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(1)
    await pair.there.gateway.ReportTasks(reported(keys, freed_slots=1, list_number=2), Peer())
    for number, lost in ((2, 0), (3, 1)):
        asked = session_of(list_number=1)
        asked.list_number = number
        monkeypatch.setattr(pair.here.lists, "_sessions", lambda asked=asked: [asked])
        await pair.here.lists.compare_all()
        assert (await pair.stored(job_id)).running[1].lost_launches == lost


async def test_an_executor_of_the_version_before_reports_where_it_polls(pair):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    asked = pair.here.executors.require("e1", "life")
    asked.list_number = 5
    keys = await pair.fill(1)
    answer = await pair.here.gateway.ReportTasks(reported(keys, freed_slots=1), Peer())
    assert list(map(task_key, answer.acknowledged)) == keys
    assert [task.partition for task_set in answer.task_sets for task in task_set.tasks] == [1]
    assert (await pair.stored(job_id)).running[1].list_number == 5


async def test_slots_without_reports_are_added_to_the_poll_that_waits(pair):
    await register(pair)
    asked = pair.here.executors.require("e1", "life")
    waiting = asyncio.create_task(pair.here.dispatcher.wait_for_work(asked, 1, 5))
    await asyncio.sleep(0)
    answer = await pair.here.gateway.ReportTasks(reported([], freed_slots=2), Peer())
    assert answer.credited_slots == 2
    assert pair.here.dispatcher._offers["e1"].credit == 3
    pair.here.dispatcher.nudge(lambda _: True)
    await waiting


async def test_who_is_polled_learns_from_heartbeats_what_to_cancel(pair):
    await register(pair)
    pair.here.executors.require("e1", "life").list_number = 1
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(1, pair.there)
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life", running=map(task_id, keys))
    assert not (await pair.here.gateway.Heartbeat(beat, Peer())).cancel
    await pair.there.local.coordinator(job_id).cancel("enough")
    await pair.here.heads.refresh()
    assert list(map(task_key, (await pair.here.gateway.Heartbeat(beat, Peer())).cancel)) == keys
    pair.clock.advance(int(YOUNG_S * 1000) + 1)
    other = pb.HeartbeatRequest(executor_id="e1", incarnation="life", running=[task_id(keys[0]._replace(partition=1))])
    await pair.here.gateway.Heartbeat(other, Peer())
    assert list(pair.here.executors.require("e1", "life").held) == [keys[0]._replace(partition=1)]


async def test_who_is_not_polled_says_once_what_nobody_wants(pair):
    await register(pair)
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    keys = await pair.fill(2)
    answer = await pair.there.gateway.ReportTasks(reported(keys[:1], freed_slots=1), Peer())
    ((launched,),) = (task_keys(task_set) for task_set in answer.task_sets)
    await pair.there.local.coordinator(job_id).cancel("enough")
    pair.clock.advance(1_000)
    answer = await pair.there.gateway.ReportTasks(reported(keys[1:]), Peer())
    assert list(map(task_key, answer.cancel)) == [launched]
    pair.clock.advance(1_000)
    assert not (await pair.there.gateway.ReportTasks(reported([]), Peer())).cancel


async def test_what_came_there_and_is_not_listed_any_more_is_no_reason_to_ask(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 2)
    asked = session_of(list_number=1)
    keys = await pair.fill(2)
    asked.held = dict.fromkeys(keys, -10.0)
    await pair.here.lists.take(asked, 2, {keys[0]})
    assert [call for call in pair.calls if call.lists], "one has perhaps got lost"
    pair.calls.clear()
    await pair.here.lists.take(asked, 3, set())
    assert not [call for call in pair.calls if call.lists], "it was reported to who acts"


async def test_what_was_reported_to_who_acts_before_the_next_list_is_not_cancelled(pair):
    await register(pair)
    asked = pair.here.executors.require("e1", "life")
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    waiting = asyncio.create_task(pair.here.dispatcher.wait_for_work(asked, 1, 5))
    await asyncio.sleep(0)
    await pair.here.dispatcher._fill()
    (launched,) = await waiting
    keys = task_keys(launched)
    await pair.there.gateway.ReportTasks(reported(keys), Peer())
    await pair.here.heads.refresh()
    assert pair.here.heads.get(job_id).state.is_terminal
    _, is_young = await pair.here.lists.take(asked, 1, set())
    assert is_young
    assert not asked.runs(job_id)
    assert await pair.here.lists.unwanted(asked) == []
    _, is_young = await pair.here.lists.take(asked, 2, set(keys))
    assert not is_young
    assert await pair.here.lists.unwanted(asked) == keys, "it is there"
    asked.held = dict.fromkeys(keys, pair.clock.monotonic_s())
    _, is_young = await pair.here.lists.take(asked, 3, set())
    assert not is_young, "it was there: it is not on its way"
    assert not asked.held


async def test_a_planning_task_brings_the_spec_where_that_is_at_hand(pair):
    await register(pair)
    job_id = job_of(HERE)
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await pair.here.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="c"), Peer())
    asked = pb.PollWorkRequest(executor_id="e1", incarnation="life", free_slots=1, list_number=1, wait_ms=5_000)
    waiting = asyncio.create_task(pair.here.gateway.PollWork(asked, Peer()))
    dispatching = asyncio.create_task(pair.here.dispatcher.run())
    answer = await waiting
    dispatching.cancel()
    (blob,) = answer.blobs
    assert [task_set.spec_digest for task_set in answer.task_sets] == [blob.digest] == [digest_of(blob.content)]
    assert pair.there.blobs.at_hand(blob.digest) is None
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 2"))
    await pair.here.service.SubmitJob(pb.SubmitJobRequest(job_id=job_of(HERE, 1), spec=spec, client_id="c"), Peer())
    failure = pb.Failure(kind="user_error")
    ended = [pb.TaskReport(task=task_id(key), failure=failure) for key in task_keys(answer.task_sets[0])]
    freed = pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=ended, freed_slots=1)
    answer = await pair.here.gateway.ReportTasks(freed, Peer())
    (blob,) = answer.blobs
    assert [task_set.spec_digest for task_set in answer.task_sets] == [blob.digest] == [digest_of(blob.content)]


# ---------------------------------------------------------------- telling of many jobs


@pytest.mark.parametrize("asks", [False, True], ids=["told", "asks"])
async def test_of_more_jobs_than_a_call_may_tell_the_rest_is_told_by_later_ones(pair, monkeypatch, asks):
    monkeypatch.setattr(job_loads, "MAX_LOADS", 2)
    job_ids = [job_of(HERE, n) for n in range(5)]
    for job_id in job_ids:
        await pair.here.jobs.submit(graph(job_id))
    await pair.there.heads.refresh()
    for _ in range(3):
        assert {pair.there.loads.position(job_id)[0] for job_id in job_ids} != {0}
        if asks:
            await pair.there.others.actors()[HERE].compare(SLOT, [], disproves=False)
        else:
            await pair.here.others.actors()[THERE].tell()
    assert {pair.there.loads.position(job_id)[0] for job_id in job_ids} == {0}
    assert all(len(call.loads) <= 2 for call in pair.calls)
    pair.calls.clear()
    await pair.here.others.actors()[THERE].tell()
    await pair.here.others.actors()[THERE].tell()
    assert len(pair.calls) == asks, "nothing is told twice, unless it is not sure to have arrived"


# ---------------------------------------------------------------- watching


async def test_all_who_watch_a_job_of_another_replica_share_what_it_is_asked(pair, monkeypatch):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    pair.calls.clear()
    told, teller = [], pair.there.for_replicas.teller
    monkeypatch.setattr(teller, "progress", lambda found, progress=teller.progress: told.append(1) or progress(found))
    actor = pair.here.others.actor_of(job_id)
    first, *others = [asyncio.create_task(actor.progress(job_id)) for _ in range(30)]
    await asyncio.sleep(0)
    first.cancel()  # who leaves takes nothing from the others
    found = await asyncio.gather(*others)
    assert {each.progress.stages[1].partitions for each in found} == {5}
    assert [len(call.watched) for call in pair.calls] == [1]
    keys = await pair.fill(1)
    again, _ = await asyncio.gather(actor.progress(job_id), actor.progress(job_id))
    assert (again.progress.stages[1].running, again.log_seq) == (len(keys), found[0].log_seq + 1)
    assert len(told) == 2


async def test_who_watches_asks_anew_while_a_call_is_under_way(pair):
    """What that one brings may be older than the change that the watcher has heard of."""
    job_id = job_of(THERE)
    await pair.run_job(job_id, 5)
    actor, is_made, may_arrive = pair.here.others.actor_of(job_id), asyncio.Event(), asyncio.Event()

    async def slow(scheduler_id, request):
        answer = await pair.forward(scheduler_id, request)
        is_made.set()
        await may_arrive.wait()
        return answer

    pair.here.others._calls.forward = slow
    early = asyncio.create_task(actor.progress(job_id))
    await is_made.wait()
    await pair.there.local.fill(job_id, [ExecutorReservation.of(SLOT)])
    late = asyncio.create_task(actor.progress(job_id))
    await asyncio.sleep(0)
    may_arrive.set()
    assert (await late).log_seq == (await early).log_seq + 1


async def test_no_call_has_more_parts_than_the_other_replica_takes(pair):
    jobs = [JobId(f"none-{n}") for n in range(1_500)]
    actor = pair.here.others.actors()[THERE]
    pair.calls.clear()
    watchers = (actor.progress(job_id) for job_id in jobs)
    found = await asyncio.gather(*watchers, return_exceptions=True)
    assert {str(each) for each in found} == {f"there does not follow {job_id}" for job_id in jobs}
    assert max(len(call.watched) for call in pair.calls) == 64
    pair.calls.clear()
    await asyncio.gather(*(actor.compare(SLOT, [], disproves=False) for _ in range(1_500)))
    assert sorted(len(call.lists) for call in pair.calls) == [476, 1024]
