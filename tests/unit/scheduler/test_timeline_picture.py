"""A job's timeline as a picture."""

import dataclasses
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from onager.errors import InvalidRequestError
from onager.execution_graph import FailureKind, JobCancelled, StageWork
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.exports import JobExports
from onager.scheduler.api.timeline.picture import picture
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.api.timeline.telling import timeline_of
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.history import JobHistory
from tests.unit.execution_graph.builder import chain, new_graph, planned, stage
from tests.unit.scheduler.small_graphs import store
from tests.unit.scheduler.test_job_store import running
from tests.unit.scheduler.timelines import many, timeline_from_log

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]


def titles(svg):
    return [title.text for title in ET.fromstring(svg).iter(f"{SVG}title")]


def test_it_shows_attempts_marks_and_who_drove_the_job():
    job = planned(*chain(2), is_shared=False)
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.launch("b")
    job.succeed(1, 0, 1)
    job.launch("b")
    job.lose("a")
    job.finish()
    svg = picture(timeline_from_log(job, writers=lambda position: "s1" if position < 8 else "s2"))
    shown = texts(svg)
    assert {"s1", "s2", "a", "b", "z", "planning", "stage 1", "stage 2"} <= set(shown)
    for said in ("task tried again: task 0 of stage 1 on a: io_error", "executor lost: a", "ended: successful"):
        assert any(said in text for text in shown), said
    for reported_on_hover in ("stage 1, task 0: failed: io_error", "s2: from "):
        assert any(title.startswith(reported_on_hover) for title in titles(svg)), reported_on_hover


def test_it_is_complete_in_itself_and_has_a_dark_form():
    svg = picture(timeline_from_log(planned(stage(1, 2, kind="result"))))
    assert "prefers-color-scheme:dark" in svg
    assert svg.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert not any(name in svg for name in ("<script", "href", "url(", "@import"))


@pytest.mark.parametrize("name", ["</text><script>alert(1)</script>", "\x00\x1b[31m\ud800 & more", "x" * 10_000])
def test_a_job_with_a_strange_name_is_still_a_picture(name):
    job = planned(stage(1, 2, kind="result"))
    job.graph = replace(job.graph, name=name)
    assert job.feed(JobCancelled(reason=name[:400], at_ms=job.tick()))
    svg = picture(timeline_from_log(job))
    assert "<script" not in svg
    assert not list(ET.fromstring(svg.encode()).iter(f"{SVG}script"))


def test_a_job_with_many_attempts_is_a_picture_of_how_busy_executors_were():
    svg = picture(timeline_of(many(3_000, 5), new_graph()))
    assert "attempts at a time" in texts(svg)
    assert len(svg) < 600_000


@pytest.mark.parametrize("work", StageWork)
def test_stages_of_every_kind_of_work_are_reported_and_drawn(work):
    job = planned(stage(1, 1, kind="result"))
    job.launch("a")
    timeline_from_log(job, story=(story := Story(job.graph)))
    story.log.stage_runs = [dataclasses.replace(run, spec=replace(run.spec, work=work)) for run in story.log.stage_runs]
    now = timeline_of(story, job.graph)
    assert {each.work for each in now.stages} == {work}
    assert "a" in texts(picture(now))


async def test_what_can_be_exported_comes_in_pieces_and_nothing_else_can(backend, clock):
    jobs = store(backend, clock, "s1")
    await running(jobs, 3)
    exports = JobExports(jobs, JobHistory(backend, jobs.recent), BlobStore(backend), clock)
    svg = b"".join(
        [piece async for piece in exports.export(JobId("job-1"), pb.ExportJobRequest(format="timeline-svg"))]
    )
    assert "stage 1" in texts(svg)
    with pytest.raises(InvalidRequestError, match="timeline-svg"):
        _ = [piece async for piece in exports.export(JobId("job-1"), pb.ExportJobRequest(format="timeline-png"))]
