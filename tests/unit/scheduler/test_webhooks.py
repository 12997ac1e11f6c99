"""Webhooks at a job's end: a real receiver, schedulers that die in between."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import ValidationError

from onager.clock import ManualClock, SystemClock
from onager.errors import InvalidSettingError
from onager.execution_graph import JobCancelled
from onager.ids import JobId
from onager.scheduler.app import SchedulerApp
from onager.scheduler.engine import delivery_queue
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.settings import SchedulerSettings
from tests.support.waiting import HANGS_S, eventually
from tests.unit.scheduler.small_graphs import graph

SECRET = b"a secret of sixteen bytes or more"


class Receiver:
    """An HTTP server that keeps what it gets, and answers as a test sets it."""

    def __init__(self):
        self.got = []
        self.answers = []
        """Of the next requests; after these, 204."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({**self.headers, "path": self.path}, body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def ids(self):
        return [headers["webhook-id"] for headers, _ in self.got]


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(delivery_queue, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(delivery_queue, "_LONGEST_PAUSE_S", 0.02)


@pytest.fixture
async def schedulers(backend, tmp_path):
    """Return what makes schedulers on one store; what they serve is not needed here."""
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    made = []

    async def make(name, *urls, **more):
        settings = SchedulerSettings(
            exchange_dir="/x",
            scheduler_id=name,
            listen="127.0.0.1:1",
            webhook_urls=urls,
            webhook_secret_file=tmp_path / "secret",
            **more,
        )
        scheduler = SchedulerApp(settings, backend, SystemClock())
        await scheduler.start()
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in made:
        await scheduler.close()


async def ended(scheduler, job_id="job-1", at_ms=None):
    await scheduler.jobs.submit(graph(job_id))
    event = JobCancelled(reason="password=hunter2", at_ms=at_ms or SystemClock().now_ms())
    await scheduler.writers.record_decision(JobId(job_id), lambda _: Decision([event]))


class Delivering:
    """The webhooks of a scheduler at work, until killed."""

    def __init__(self, scheduler):
        self.task = asyncio.create_task(scheduler.webhooks.run())

    async def kill(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def is_reported(scheduler, job_id="job-1"):
    async def look():
        await scheduler.heads.refresh()
        return not scheduler.heads.get(JobId(job_id)).is_notice_due

    await eventually(look)


async def test_an_end_is_reported_with_a_signature_that_receivers_can_check(schedulers, receiver):
    scheduler = await schedulers("s1", receiver.url)
    at_work = Delivering(scheduler)
    await scheduler.jobs.submit(graph("goes-on"))
    await ended(scheduler)
    await is_reported(scheduler)
    await at_work.kill()
    ((headers, body),) = receiver.got
    assert headers["webhook-id"] == "job-1"
    content = f"job-1.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET, content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    notice = json.loads(body)
    assert notice["type"] == "job.ended"
    assert (notice["data"]["job_id"], notice["data"]["state"]) == ("job-1", "cancelled")
    assert b"hunter2" not in body


async def test_a_refused_delivery_is_tried_again_with_the_same_id_and_redirects_are_not_followed(schedulers, receiver):
    receiver.answers = [500, 302, 429]
    scheduler = await schedulers("s1", receiver.url)
    await ended(scheduler)
    at_work = Delivering(scheduler)
    await is_reported(scheduler)
    await at_work.kill()
    assert receiver.ids() == ["job-1"] * 4


async def test_what_was_due_when_a_scheduler_died_another_one_sends(schedulers, receiver):
    receiver.answers = [500] * 1000
    first = await schedulers("s1", receiver.url)
    at_work = Delivering(first)
    await ended(first)
    await ended(first, "job-2")
    await eventually(lambda: len(receiver.got) >= 2)
    await at_work.kill()
    receiver.answers = []
    # What the first one had sent may still arrive.
    second = await schedulers("s2", f"{receiver.url}/again")
    assert second.heads.get(JobId("job-1")).is_notice_due
    at_work = Delivering(second)
    await is_reported(second)
    await is_reported(second, "job-2")
    await at_work.kill()
    ids = [headers["webhook-id"] for headers, _ in receiver.got if headers["path"].endswith("/again")]
    assert sorted(ids) == ["job-1", "job-2"]
    third = await schedulers("s3", receiver.url)
    assert not third.webhooks.deliveries._due, "what was sent once is not sent again"


async def test_who_dies_between_telling_and_noting_is_followed_by_a_repeat_with_the_same_id(
    schedulers, receiver, monkeypatch
):
    first = await schedulers("s1", receiver.url)
    noting = asyncio.Event()

    async def never(*_):
        noting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(first.webhooks.deliveries, "note_done", never)
    at_work = Delivering(first)
    await ended(first)
    await asyncio.wait_for(noting.wait(), HANGS_S)
    await at_work.kill()
    second = await schedulers("s2", receiver.url)
    at_work = Delivering(second)
    await is_reported(second)
    await at_work.kill()
    assert receiver.ids() == ["job-1", "job-1"]
    assert receiver.got[0][1] == receiver.got[1][1]


async def test_a_receiver_that_is_gone_does_not_keep_others_from_being_notified_and_is_given_up(schedulers, receiver):
    closed = Receiver()
    closed.close()
    scheduler = await schedulers("s1", closed.url, receiver.url, webhook_give_up_s=0)
    at_work = Delivering(scheduler)
    await ended(scheduler, at_ms=SystemClock().now_ms() - 1000)
    await is_reported(scheduler)
    await at_work.kill()
    assert receiver.ids() == ["job-1"]


async def test_without_webhooks_nothing_is_due(backend):
    scheduler = SchedulerApp(SchedulerSettings(exchange_dir="/x", scheduler_id="s1"), backend, SystemClock())
    await scheduler.start()
    await ended(scheduler)
    assert not scheduler.heads.get(JobId("job-1")).is_notice_due
    await scheduler.close()


@pytest.mark.parametrize("url", ["http://example.com/x", "ftp://example.com", "example.com", "https://"])
def test_addresses_have_to_be_encrypted_or_on_this_machine(url):
    with pytest.raises(ValidationError, match="no address of a webhook"):
        SchedulerSettings(webhook_urls=f"https://example.com/hook, {url}")


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot be read"), ("short", "shorter than 16"), ("whsec_!!", "not Base64")]
)
async def test_a_secret_that_cannot_be_used_is_refused_at_the_start(backend, tmp_path, content, why):
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    settings = SchedulerSettings(webhook_urls="https://example.com/hook", webhook_secret_file=path)
    with pytest.raises(InvalidSettingError, match=why):
        SchedulerApp(settings, backend, SystemClock())


async def test_a_receiver_that_is_down_does_not_stop_those_that_answer(schedulers, receiver, monkeypatch):
    monkeypatch.setattr(delivery_queue, "_IN_HAND", 2)
    closed = Receiver()
    closed.close()
    scheduler = await schedulers("s1", closed.url, receiver.url)
    for number in range(5):
        await ended(scheduler, f"job-{number}")
    at_work = Delivering(scheduler)
    await eventually(lambda: len(receiver.got) == 5)
    await at_work.kill()
    assert sorted(receiver.ids()) == [f"job-{number}" for number in range(5)]
    assert all(scheduler.heads.get(JobId(f"job-{number}")).is_notice_due for number in range(5))


async def test_a_delivery_that_waited_for_its_turn_has_a_fresh_signature(schedulers, receiver):
    scheduler = await schedulers("s1", receiver.url)
    clock = scheduler.webhooks._clock = ManualClock()
    came_s = clock.now_ms() // 1000

    class Turn:
        async def __aenter__(self):
            clock.advance(600_000)

        async def __aexit__(self, *_):
            pass

    scheduler.webhooks._requests[receiver.url] = Turn()
    await ended(scheduler)
    at_work = Delivering(scheduler)
    await is_reported(scheduler)
    await at_work.kill()
    ((headers, _),) = receiver.got
    assert int(headers["webhook-timestamp"]) == came_s + 600


async def test_the_path_of_a_sink_is_reported_without_its_login(schedulers, receiver):
    scheduler = await schedulers("s1", receiver.url)
    await ended(scheduler)
    head = scheduler.heads.get(JobId("job-1")).model_copy(update={"sink_path": "hdfs://user:topsecret@host/out"})
    assert await scheduler.heads.put([head])
    at_work = Delivering(scheduler)
    await is_reported(scheduler)
    await at_work.kill()
    ((_, body),) = receiver.got
    assert b"topsecret" not in body
    assert json.loads(body)["data"]["sink_path"].endswith("host/out")
