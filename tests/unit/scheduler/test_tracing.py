"""Jobs as OpenTelemetry traces, sent to a real receiver of OTLP over HTTP."""

import asyncio
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from pydantic import ValidationError

from onager.clock import SystemClock
from onager.errors import InvalidSettingError
from onager.execution_graph import EventBatch, FailureKind, JobCancelled
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.api import spans, tracing
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.job_specs import checked, traceparent_of
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.settings import SchedulerSettings
from tests.support.waiting import eventually
from tests.unit.execution_graph.builder import chain, planned
from tests.unit.scheduler.small_graphs import graph, succeeded
from tests.unit.scheduler.small_graphs import planned as planned_event
from tests.unit.scheduler.test_job_store import launches

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
JOB = JobId("job-1")


class Collector:
    """Takes spans as any collector does."""

    def __init__(self):
        self.spans = []
        self.paths = set()
        self.refused = set()
        """Ids of traces."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.paths.add(self.path)
                scopes = [
                    scope
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans
                    for scope in resource.scope_spans
                ]
                found = [span for scope in scopes for span in scope.spans]
                is_taken = collector.refused.isdisjoint(span.trace_id for span in found)
                if is_taken:
                    collector.spans += found
                self.send_response(200 if is_taken else 400)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def named(self, beginning):
        return [span for span in self.spans if span.name.startswith(beginning)]


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


async def scheduler(backend, name, url):
    app = SchedulerApp(
        SchedulerSettings(exchange_dir="/x", scheduler_id=name, otel_endpoint=url), backend, SystemClock()
    )
    await app.start()
    return app


async def exported(app):
    """Let the scheduler export until nothing is due."""
    running = asyncio.create_task(app.tracing.run(app.exports.timelines))

    async def is_done():
        await app.heads.refresh()
        return not app.heads.get(JOB).is_trace_due

    await eventually(is_done)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_job_is_one_trace_whichever_schedulers_drove_it(backend, collector):
    first = await scheduler(backend, "s1", collector.url)
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), conf={"onager.traceparent": CALLER})
    _, content, digest = checked(
        pb.SubmitJobRequest(job_id=JOB, spec=spec, client_id="c", protocol_version=PROTOCOL_VERSION), 0
    )
    await first.blobs.put(JOB, [content])
    await first.jobs.submit(graph(JOB, digest))
    await first.writers.record_decision(JOB, lambda job: Decision(launches(job)))
    await first.writers.record_decision(JOB, lambda _: Decision([planned_event(2)]))
    second = await scheduler(backend, "s2", collector.url)
    await second.writers.record_decision(JOB, lambda job: Decision(launches(job, 2)))
    await second.writers.record_decision(JOB, lambda _: Decision([succeeded(1, 0), succeeded(1, 1)]))
    await first.heads.refresh()
    assert first.heads.get(JOB).is_trace_due
    await exported(second)

    assert collector.paths == {"/v1/traces"}
    assert {span.trace_id for span in collector.spans} == {spans.trace_id(JOB).to_bytes(16, "big")}
    (root,) = collector.named("job ")
    assert not root.parent_span_id
    assert [link.trace_id.hex() for link in root.links] == [CALLER.split("-")[1]]
    assert [event.name for event in root.events] == ["planned", "take_over", "ended"]
    stages = {span.span_id: span.name for span in collector.named("stage ")}
    assert sorted(stages.values()) == ["stage 0: plan", "stage 1: one"]
    assert {span.parent_span_id for span in collector.named("stage ")} == {root.span_id}
    tasks = Counter(stages[span.parent_span_id] for span in collector.named("task "))
    assert tasks == {"stage 0: plan": 1, "stage 1: one": 2}
    await first.close()
    await second.close()


async def test_what_a_dead_scheduler_did_not_export_is_exported_as_the_same_spans(backend, collector):
    first = await scheduler(backend, "s1", collector.url)
    await first.jobs.submit(graph(JOB))
    cancel = JobCancelled(reason="enough", at_ms=first._clock.now_ms())
    await first.writers.record_decision(JOB, lambda _: Decision([cancel]))
    await exported(first)
    before = {span.span_id for span in collector.spans}
    head = first.heads.get(JOB).model_copy(update={"is_trace_due": True})
    await first.heads.put([head])  # as if it had died before it took that back
    second = await scheduler(backend, "s2", collector.url)
    await exported(second)
    assert {span.span_id for span in collector.spans} == before
    assert len(collector.spans) == 2 * len(before)
    await first.close()
    await second.close()


def test_failed_attempts_are_errors_and_every_span_has_an_id_of_its_own():
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("a", limit=1)
    job.launch("b")
    job.lose("a")
    job.launch("c")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.finish()
    story = Story(job.graph)
    for position, event in enumerate(job.log, 1):
        story.feed(position, EventBatch(batch_id=str(position), events=(event,), writer="s1"))
    found = list(spans.spans(story, job.graph))
    ids = [span.context.span_id for span in found]
    assert len(set(ids)) == len(ids) == 1 + len(story.log.stage_runs) + len(story.log.attempts)
    assert {span.parent.span_id for span in found if span.parent} <= set(ids)
    errors = [span for span in found if span.status.status_code.value == Status.StatusCode.STATUS_CODE_ERROR]
    assert Counter(span.attributes.get("onager.outcome") for span in errors) == {"lost": 1, "failed": 1, "stopped": 1}


@pytest.mark.parametrize(
    "text", ["", "x", CALLER.upper(), CALLER + "0", f"00-{'0' * 32}-b7ad6b7169203331-01", "01" + CALLER[2:]]
)
def test_a_traceparent_that_is_none_is_refused_when_the_job_is_submitted(text):
    assert traceparent_of(text) is None
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), conf={"onager.traceparent": text})
    with pytest.raises(InvalidSettingError, match="W3C traceparent"):
        checked(pb.SubmitJobRequest(job_id=JOB, spec=spec, client_id="c", protocol_version=PROTOCOL_VERSION), 0)


def test_an_endpoint_is_an_address_of_the_web():
    with pytest.raises(ValidationError, match="http://HOST:PORT"):
        SchedulerSettings(otel_endpoint="localhost:4317")


async def test_jobs_whose_spans_nobody_takes_do_not_hold_up_others(backend, collector):
    bad, good = [f"bad-{n}" for n in range(tracing._AT_ONCE)], ["good-1", "good-2"]
    collector.refused = {spans.trace_id(job_id).to_bytes(16, "big") for job_id in bad}
    app = await scheduler(backend, "s1", collector.url)
    for job_id in (*bad, *good):
        await app.jobs.submit(graph(job_id))
        cancel = JobCancelled(reason="enough", at_ms=app._clock.now_ms())
        await app.writers.record_decision(JobId(job_id), lambda _, event=cancel: Decision([event]))
    running = asyncio.create_task(app.tracing.run(app.exports.timelines))
    wanted = {spans.trace_id(job_id).to_bytes(16, "big") for job_id in good}
    await eventually(lambda: {span.trace_id for span in collector.spans} == wanted)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await app.close()
