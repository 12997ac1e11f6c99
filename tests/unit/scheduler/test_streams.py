"""What tasks get of the streams that they read, and jobs that stop streaming."""

from types import SimpleNamespace

from onager.execution_graph import ExecutorLost, ExecutorSlot, Streaming, apply
from onager.execution_graph.events import StreamingAbandoned
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key
from onager.scheduler.engine.job_checks import JobChecks
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.engine.streams import Streams
from tests.unit.execution_graph.builder import chain, planned
from tests.unit.scheduler.parts import env, executors, stored, view

GONE = ExecutorLost(executor_id="a", incarnation="a1", reason="gone", at_ms=9)


def at_work():
    """Two stages of two tasks each: the first on executors a and b, the second on c."""
    job = planned(*chain(2), streaming=Streaming())
    job.launch("a", 1)
    job.launch("b", 1)
    job.launch("c")
    return job.graph


class Roster:
    """Addresses that become known once the store is asked."""

    def __init__(self, known, stored):
        self.known, self.stored = dict(known), stored
        self.asked = 0
        self.streams = Streams(lambda executor_id, life: self.known.get((executor_id, life), ""), self.refresh)

    async def refresh(self):
        self.asked += 1
        self.known = dict(self.stored)


BOTH = {("a", "a1"): "h:1", ("b", "b1"): "h:2"}


async def test_an_address_that_is_not_known_yet_is_asked_for():
    registry = Roster({("a", "a1"): "h:1"}, BOTH)
    graph = at_work()
    await registry.streams.learn(graph, [1])
    assert registry.asked == 0, "a stage that reads nothing needs no address"
    await registry.streams.learn(graph, [2])
    assert registry.asked == 1
    await registry.streams.learn(graph, [2])
    assert registry.asked == 1
    (stream,) = registry.streams.inputs_of(graph, 2)
    tasks = [pb.StreamedTask(task_attempt=0, address="h:1"), pb.StreamedTask(task_attempt=0, address="h:2")]
    assert stream == pb.StreamedInput(stage_id=1, stage_attempt=0, tasks=tasks)


async def test_a_life_that_is_over_has_no_address():
    registry = Roster({}, {("a", "a1"): "h:1", ("b", "b2"): "h:3"})
    graph = at_work()
    await registry.streams.learn(graph, [2])
    (stream,) = registry.streams.inputs_of(graph, 2)
    assert [task.address for task in stream.tasks] == ["h:1", ""]


def test_a_slot_of_an_executor_without_an_address_is_not_for_streams():
    streams = Roster(BOTH, BOTH).streams
    assert streams.known(ExecutorSlot("a", "a1", 3)) == ExecutorSlot("a", "a1", 3, can_stream=True)
    assert not streams.known(ExecutorSlot("a", "a2", 3)).can_stream
    assert not Streams().known(ExecutorSlot("a", "a1", 3)).can_stream


async def test_failures_of_tasks_that_stream_are_nobodys_mark():
    received = []
    reader = ReportReader(
        None, None, SimpleNamespace(now_ms=lambda: 9), executors(), lambda *seen: received.append(seen[2])
    )
    task = pb.TaskId(job_id="job-1", stage_id=1, stage_attempt=0, partition=0, task_attempt=0)
    report = pb.TaskReport(task=task, failure=pb.Failure(kind="io_error", message="a stream broke off"))
    events = await reader.read_reports(at_work(), ExecutorSlot("a", "a1", 1), by_key([report]))
    assert [event.failure.message for event in events] == ["a stream broke off"]
    again = apply(at_work(), StreamingAbandoned(reason="why not", at_ms=9))
    assert received == [[]]
    job = planned(*chain(2))
    job.launch("a")
    await reader.read_reports(job.graph, ExecutorSlot("a", "a1", 1), by_key([report]))
    assert len(received[1]) == 1
    assert again.stages[1].attempt == 1


class Watched:
    """The part that supervises streaming jobs, with one job."""

    def __init__(self, clock, graph):
        self.graph, self.reported, self.given_up = graph, [], []
        job = lambda _: SimpleNamespace(graph=self.graph)  # noqa: E731
        self.jobs = SimpleNamespace(cached=job)
        coordinator = QueryCoordinator(
            "job-1", SimpleNamespace(record_decision=self.record_decision), clock, Cluster(lambda: 2)
        )
        local = SimpleNamespace(coordinator=lambda _: coordinator)
        self.follows = True
        ownership = SimpleNamespace(followed=["job-1"], follows=lambda _: self.follows)
        self.executors, self.streaming = {"a", "b"}, {"b"}
        found = SimpleNamespace(taking_work=lambda: self.executors, streaming=lambda: self.streaming)
        self.checks = JobChecks(
            env(clock),
            stored(None, self.jobs, clock),
            view(ownership=ownership, found=found),
            local,
            self.reported.append,
        )

    def commit(self):
        self.checks.on_commit(SimpleNamespace(graph=self.graph), SimpleNamespace(job_id="job-1"))

    def end(self):
        self.checks.on_head("job-1", None)

    async def record_decision(self, job_id, decide):
        self.given_up += [(job_id, event.type) for event in decide(self.graph).events]


async def test_jobs_that_nobody_can_run_are_given_up(clock):
    job = planned(*chain(2), streaming=Streaming())
    watched = Watched(clock, job.graph)
    await watched.checks.check_all()
    assert watched.given_up == []
    watched.streaming = set()
    await watched.checks.check_all()
    assert watched.given_up == [("job-1", "streaming_abandoned")]
    watched.graph = at_work()
    await watched.checks.check_all()
    assert len(watched.given_up) == 1, "its tasks are all at work"


def test_what_was_given_up_is_stopped_and_counted_once(clock):
    watched = Watched(clock, at_work())
    watched.commit()
    assert watched.reported == []
    watched.graph = apply(watched.graph, GONE)
    watched.commit()
    watched.commit()
    assert watched.reported == ["job-1"]
    assert watched.checks.abandoned == 1


def test_another_schedulers_job_is_stopped_and_not_counted(clock):
    watched = Watched(clock, at_work())
    watched.follows = False
    watched.commit()
    watched.graph = apply(watched.graph, GONE)
    watched.commit()
    assert len(watched.reported) == 1
    assert watched.checks.abandoned == 0


def test_a_job_that_ends_as_it_began_has_given_nothing_up(clock):
    watched = Watched(clock, at_work())
    watched.commit()
    job = planned(*chain(2), streaming=Streaming())
    job.finish()
    watched.graph = job.graph
    watched.commit()
    assert watched.reported == []


def test_a_job_that_has_ended_elsewhere_is_kept_no_longer(clock):
    watched = Watched(clock, at_work())
    watched.commit()
    watched.end()
    watched.graph = apply(watched.graph, GONE)
    watched.commit()
    assert watched.reported == []
