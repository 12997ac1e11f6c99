"""Timelines are read from the store, for many who look, and while jobs go on."""

import asyncio
import json

import pytest

from onager.execution_graph import (
    JobCancelled,
)
from onager.execution_graph.intervals import Outcome
from onager.scheduler.api.timeline.model import MarkKind
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.jobs.history import JobHistory
from tests.unit.scheduler.small_graphs import forget, graph, store, succeeded
from tests.unit.scheduler.test_job_store import running, step
from tests.unit.scheduler.timelines import JOB, marks


async def test_it_is_read_from_the_store_before_and_after_the_end(backend, clock):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job = await running(jobs, 3)
    job = await step(jobs, job, [succeeded(1, 0, at_ms=20)])
    first = await timelines.get(JOB)
    assert first.outcomes == {Outcome.RUNNING: 2, Outcome.SUCCESSFUL: 2}
    job = await step(jobs, job, [succeeded(1, 1, at_ms=30)])
    then = json.loads(await timelines.as_json(JOB, first.position))
    assert [bar["partition"] for bar in then["bars"]] == [1]
    await step(jobs, job, [succeeded(1, 2, at_ms=40)])
    elsewhere = Timelines(other := store(backend, clock, "s2"), JobHistory(backend, other.recent), clock)
    assert (await elsewhere.get(JOB)).as_json() == (await timelines.get(JOB)).as_json()
    assert (await elsewhere.get(JOB)).is_over


async def test_a_story_that_broke_off_is_begun_anew(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job = await running(jobs, 3)
    await timelines.get(JOB)
    await step(jobs, job, [succeeded(1, 0, at_ms=20), succeeded(1, 1, at_ms=20)])

    def break_off(*_):
        raise RuntimeError("in the middle of a batch")

    with monkeypatch.context() as broken:
        broken.setattr(Story, "_note_writer", break_off)
        with pytest.raises(RuntimeError):
            await timelines.get(JOB)
    assert (await timelines.get(JOB)).outcomes == {Outcome.RUNNING: 1, Outcome.SUCCESSFUL: 3}


async def test_a_job_with_an_id_that_was_used_before_has_its_own_timeline(backend, clock):
    jobs = store(backend, clock)
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job, _ = await jobs.submit(graph(at_ms=1))
    await step(jobs, job, [JobCancelled(reason="enough", at_ms=4)])
    assert (await timelines.get(JOB)).is_over
    await forget(backend)
    timelines._jobs = store(backend, clock)
    await timelines._jobs.submit(graph(at_ms=70))
    second = await timelines.get(JOB)
    assert (second.submitted_ms, second.state, second.is_over) == (70, "queued", False)
    assert not marks(second, MarkKind.ENDED)


async def test_who_looks_at_a_long_job_at_about_the_same_time_gets_the_same(backend, clock, monkeypatch):
    monkeypatch.setattr("onager.scheduler.api.timeline.story.MAX_BARS", 2)
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job = await running(jobs, 3)
    first = await timelines.as_json(JOB)
    assert json.loads(first)["bucket_ms"]
    job = await step(jobs, job, [succeeded(1, 0, at_ms=20)])
    assert await timelines.as_json(JOB, json.loads(first)["position"]) is first
    clock.advance(1_000)
    second = json.loads(await timelines.as_json(JOB))
    assert second["outcomes"] == {"running": 2, "successful": 2}
    assert second["marks"], "all is sent again, whatever was known before"
    await step(jobs, job, [succeeded(1, 1, at_ms=30), succeeded(1, 2, at_ms=40)])
    last = json.loads(await timelines.as_json(JOB, second["position"]))
    assert (last["is_over"], last["state"]) == (True, "successful")


async def test_who_wants_a_long_log_soon_gets_its_beginning_and_then_the_rest(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    history = JobHistory(backend, jobs.recent)
    timelines = Timelines(jobs, history, clock)
    job = await running(jobs, 4)
    for partition in range(4):
        job = await step(jobs, job, [succeeded(1, partition, at_ms=20 + partition)])
    assert not job.graph.is_active
    pages = history.pages

    async def slowly(*args, **kwargs):
        async for page in pages(*args, **kwargs):
            for entry in page:
                clock.advance(400)
                yield [entry]

    monkeypatch.setattr(history, "pages", slowly)
    first = json.loads(await timelines.as_json(JOB, soon=True))
    assert (first["position"], first["is_early"], first.get("is_over", False)) == (2, True, False)
    found, position = {}, 0
    while True:
        more = json.loads(await timelines.as_json(JOB, position, soon=True))
        found |= {(bar["stage"], bar.get("partition", 0)): bar["outcome"] for bar in more["bars"]}
        assert more["position"] > position
        position = more["position"]
        if not more.get("is_early"):
            break
    assert more["is_over"]
    assert [outcome for (stage_id, _), outcome in sorted(found.items()) if stage_id == 1] == ["successful"] * 4
    elsewhere = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    assert json.loads(await elsewhere.as_json(JOB))["outcomes"] == more["outcomes"]


async def test_a_long_job_that_ends_while_its_timeline_is_read_is_reported_as_ended(backend, clock, monkeypatch):
    monkeypatch.setattr("onager.scheduler.api.timeline.story.MAX_BARS", 1)
    jobs = store(backend, clock, "s1")
    history = JobHistory(backend, jobs.recent)
    timelines = Timelines(jobs, history, clock)
    job = await running(jobs, 2)
    after = history.after

    async def and_it_ends(*args):
        history.after = after
        await step(jobs, job, [succeeded(1, 0, at_ms=30), succeeded(1, 1, at_ms=40)])
        return await after(*args)

    monkeypatch.setattr(history, "after", and_it_ends)
    content = json.loads(await timelines.as_json(JOB))
    assert (content["is_over"], content["state"]) == (True, "successful")
    assert json.loads(await timelines.as_json(JOB))["state"] == "successful"


async def test_who_waits_for_a_story_that_broke_off_gets_a_new_one(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    await running(jobs, 3)
    stories, broken = [], asyncio.Event()
    follow = Timelines._follow

    async def break_off_once(self, story, job, until_s):
        stories.append(story)
        if len(stories) == 1:
            await broken.wait()
            raise RuntimeError("in the middle of a batch")
        await follow(self, story, job, until_s)

    monkeypatch.setattr(Timelines, "_follow", break_off_once)
    first, second = (asyncio.create_task(timelines.get(JOB)) for _ in range(2))
    for _ in range(50):  # until the second one waits for the first
        await asyncio.sleep(0)
    broken.set()
    with pytest.raises(RuntimeError):
        await first
    assert (await second).attempts == 4
    assert stories[1] is not stories[0]


async def test_a_story_that_broke_off_after_it_made_room_for_others_says_why(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    await running(jobs, 3)

    async def break_off(self, *_):
        self._kept.clear()
        raise RuntimeError("in the middle of a batch")

    monkeypatch.setattr(Timelines, "_follow", break_off)
    with pytest.raises(RuntimeError, match="in the middle"):
        await timelines.get(JOB)
