"""Parts of the HTTP interface: the models of messages, cursors, shared answers, and feeds of events."""

import asyncio
import gc
import json
import weakref

import pytest
from fastapi.exceptions import RequestValidationError
from google.protobuf.descriptor import FieldDescriptor

from onager.errors import JobNotFoundError, StateUnavailableError
from onager.protocol import onager_pb2 as pb
from onager.protocol.plain import plain, plain_job
from onager.scheduler.api.job_queries import Standing
from onager.scheduler.http import cursors, encoding, models
from onager.scheduler.http.coalescing import Coalesced
from onager.scheduler.http.feeds import JobFeeds
from onager.scheduler.http.messages import answer_of, request_of
from onager.scheduler.http.pages import PAGE_EVENTS, Kept, Pages
from tests.support.waiting import eventually

ANSWERS = (pb.JobProgress, pb.TaskInfo, pb.ExecutorInfo, pb.SchedulerInfo, pb.AuditEntry, pb.FinalStage)


def filled(message):
    """Return *message* with a value in every field."""
    for field in message.DESCRIPTOR.fields:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            getattr(message, field.name)["key"] = "value"
        elif entry is not None:
            part = getattr(message, field.name)
            filled(part.add() if field.is_repeated else part)
        else:
            value = {
                FieldDescriptor.TYPE_STRING: "text",
                FieldDescriptor.TYPE_BYTES: b"bytes",
                FieldDescriptor.TYPE_BOOL: True,
                FieldDescriptor.TYPE_DOUBLE: 0.5,
            }.get(field.type, 3)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


@pytest.mark.parametrize("message", ANSWERS, ids=lambda m: m.__name__)
def test_the_models_are_what_the_messages_are_as_json(message):
    model = answer_of(message)
    for made in (message(), filled(message())):
        content = plain(made)
        again = model.model_validate(content, strict=True).model_dump(by_alias=True, exclude_none=True)
        assert again == content
    schema = model.model_json_schema()
    assert list(schema["properties"]) == [field.name for field in message.DESCRIPTOR.fields]


def test_the_comments_of_the_protocol_are_in_the_document():
    schema = answer_of(pb.JobProgress).model_json_schema()
    assert schema["properties"]["waiting_for"]["description"].startswith("why nothing runs, for people")
    assert "tried again next" in schema["$defs"]["TaskRetry"]["description"]


def test_a_job_is_flat():
    content = plain_job(_detail())
    models.JobDetail.model_validate(content, strict=True)
    assert (content["job_id"], content["log_seq"], content["schema"]) == ("text", 3, {"type": "struct"})


def _detail():
    detail = filled(pb.JobDetail())
    detail.schema_json = '{"type":"struct"}'
    return detail


def test_a_request_may_leave_everything_out_and_has_no_other_field():
    model = request_of(pb.JobSpec)
    model.model_validate({})
    with pytest.raises(ValueError, match="sqll"):
        model.model_validate({"sqll": {}})


def test_a_cursor_is_for_its_listing_alone():
    cursor = cursors.make("tasks job-1 2", "1000")
    assert cursors.read_number("tasks job-1 2", cursor) == 1000
    assert cursors.read_number("tasks job-1 2", "") == 0
    for listing, other in (
        ("tasks job-1 3", cursor),
        ("tasks job-1 2", cursor[:-3]),
        ("tasks job-1 2", "x"),
        ("tasks job-1 2", "\xe4"),
        ("tasks job-1 2", f"===={cursor}"),
        *(("tasks job-1 2", cursors.make("tasks job-1 2", place)) for place in ("-1", "x", "9" * 12, "9" * 5000, "²")),
    ):
        with pytest.raises(RequestValidationError):
            cursors.read_number(listing, other)


async def test_callers_share_work_that_begins_after_they_came():
    shared, begun, go = Coalesced(), [], asyncio.Event()

    async def work():
        begun.append(len(begun))
        mine = begun[-1]
        await go.wait()
        return mine

    first = asyncio.create_task(shared.get("key", work))
    await asyncio.sleep(0)
    later = [asyncio.create_task(shared.get("key", work)) for _ in range(50)]
    await asyncio.sleep(0)
    assert begun == [0]
    go.set()
    assert await first == 0
    assert set(await asyncio.gather(*later)) == {1}
    assert await shared.get("key", work) == 2
    assert not shared._rounds


async def test_one_who_leaves_takes_nothing_from_the_others_and_errors_reach_all():
    shared, go = Coalesced(), asyncio.Event()

    async def fails():
        await go.wait()
        raise JobNotFoundError("job-1")

    first = asyncio.create_task(shared.get("key", fails))
    second = asyncio.create_task(shared.get("key", fails))
    third = asyncio.create_task(shared.get("key", fails))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    for task in (second, third):
        with pytest.raises(JobNotFoundError):
            await task
    with pytest.raises(asyncio.CancelledError):
        await first


class Log:
    """The log of a job, to which a test adds, as the service streams it."""

    def __init__(self, batches=0):
        self.batches = [self._batch(n) for n in range(1, batches + 1)]
        self.changed = asyncio.Condition()
        self.is_over = False
        self.followed = 0
        self.reads = 0
        self.error = None

    def _batch(self, position):
        event = pb.JobEvent(type="thing", at_ms=position, json=f'{{"type":"thing","at_ms":{position}}}')
        return pb.EventBatch(position=position, scheduler_id="s", events=[event])

    async def add(self, count=1, *, is_over=False):
        async with self.changed:
            self.batches += [self._batch(len(self.batches) + n) for n in range(1, count + 1)]
            self.is_over = is_over
            self.changed.notify_all()

    async def source(self, method, request):
        assert method == "WatchEvents"
        self.followed += request.follow
        self.reads += not request.follow
        position = request.after
        try:
            while True:
                while position < len(self.batches):
                    position += 1
                    yield self.batches[position - 1]
                if self.error is not None and request.follow:
                    raise self.error
                if self.is_over or not request.follow:
                    return
                async with self.changed:
                    await self.changed.wait()
        finally:
            self.followed -= request.follow

    async def standing(self, _):
        return Standing(len(self.batches), self.is_over)


async def positions(feeds, after=0):
    return [batch.position async for batch in feeds.events("job-1", after)]


async def test_followers_share_one_reader_and_miss_nothing():
    log = Log(5)
    feeds = JobFeeds(log.source, log.standing)
    followers = [asyncio.create_task(positions(feeds, after)) for after in (0, 3, 5, 5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert log.followed == 1
    for _ in range(20):
        await log.add(3)
        await asyncio.sleep(0)
    await log.add(is_over=True)
    everything = list(range(1, 67))
    assert await asyncio.gather(*followers) == [everything, everything[3:], everything[5:], everything[5:]]
    assert (log.followed, feeds._events._feeds) == (0, {})


async def test_a_slow_follower_reads_the_history_and_holds_nobody_up(monkeypatch):
    monkeypatch.setattr("onager.scheduler.http.pages.KEPT_BYTES", 200)
    log = Log(1)
    feeds = JobFeeds(log.source, log.standing)
    slow = feeds.events("job-1", 1)
    first = asyncio.ensure_future(anext(slow))
    await eventually(lambda: log.followed)
    await log.add()
    assert (await first).position == 2
    quick = asyncio.create_task(positions(feeds))
    for _ in range(30):
        await log.add(10)
        await asyncio.sleep(0)
    await log.add(is_over=True)
    assert await quick == list(range(1, 304))
    before = log.reads
    assert feeds._pages._size <= 200
    assert [batch.position async for batch in slow] == list(range(3, 304))
    assert log.reads > before


async def test_what_was_read_before_an_error_is_reported_before_it():
    log = Log(2)
    feeds = JobFeeds(log.source, log.standing)
    follower = feeds.events("job-1", 2)
    log.error = StateUnavailableError("the store is away")
    await log.add(2)
    assert [(await anext(follower)).position for _ in range(2)] == [3, 4]
    with pytest.raises(StateUnavailableError):
        await anext(follower)
    assert feeds._events._feeds == {}


async def test_an_unknown_job_has_no_events():
    log = Log()

    async def standing(job_id):
        raise JobNotFoundError(job_id)

    with pytest.raises(JobNotFoundError):
        await positions(JobFeeds(log.source, standing))


async def test_progress_is_reported_at_once_and_a_slow_follower_gets_the_latest():
    changed, latest = asyncio.Event(), ["queued"]

    async def source(method, request):
        assert method == "WatchJob"
        reported = None
        while reported != "successful":
            if latest[0] != reported:
                reported = latest[0]
                yield pb.JobProgress(job_id="job-1", name=reported)
            else:
                await changed.wait()
                changed.clear()

    feeds = JobFeeds(source, Log().standing)
    follower = feeds.progress("job-1")
    names = [json.loads(await anext(follower))["name"]]
    for name in ("planning", "running", "successful"):
        latest[0] = name
        changed.set()
        for _ in range(5):
            await asyncio.sleep(0)
    names += [json.loads(message)["name"] async for message in follower]
    assert names == ["queued", "successful"]


def test_events_are_as_the_command_line_prints_them():
    event = pb.JobEvent(type="job_cancelled", at_ms=7, json='{"type":"job_cancelled","at_ms":7,"reason":"ä"}')
    (reported,) = encoding.events(pb.EventBatch(position=3, scheduler_id="s", events=[event]))
    assert json.loads(reported) == {
        "position": 3,
        "scheduler_id": "s",
        "type": "job_cancelled",
        "at_ms": 7,
        "reason": "ä",
    }
    (reported,) = encoding.events(pb.EventBatch(position=9, not_kept=True))
    assert json.loads(reported) == {"position": 9, "scheduler_id": "", "type": "not_kept", "at_ms": 0}
    models.JobEvent.model_validate_json(reported, strict=True)


async def test_a_page_that_made_room_is_freed_before_its_time_is_over(monkeypatch):
    monkeypatch.setattr("onager.scheduler.http.pages.KEPT_BYTES", 1_500)

    class Page(list):
        """A list that can be looked for."""

    async def read(_, after):
        return Page([Kept(after + 1, [b"x"] * PAGE_EVENTS, 1_000)])

    pages = Pages(read)
    first = weakref.ref(await pages.get("job-1", 0))
    gc.collect()
    assert first() is not None, "it is kept"
    await pages.get("job-1", 1)
    gc.collect()
    assert first() is None
    assert pages._size == 1_000
