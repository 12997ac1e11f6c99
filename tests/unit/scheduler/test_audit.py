"""Who asked for what: on jobs, on their cancellation, and in the audit, whichever scheduler tells it."""

import contextlib
import json

import pytest
from structlog.testing import capture_logs

from onager.cli.events import what
from onager.client.events import JobEvent
from onager.client.progress import JobProgress
from onager.errors import InvalidRequestError, StateFullError, StateUnavailableError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import BACKUP_FORMAT
from onager.protocol.security.principal import caller_of, note_principal
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.audit import Audit, AuditRecord, key_ms
from onager.scheduler.settings import SchedulerSettings
from onager.state_admin import auditing
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.small_graphs import graph

JOB = JobId("job-1")
DAY_MS = 24 * 3_600_000


class Context:
    def __init__(self, address="ipv4:10.0.0.7:41234"):
        self._address = address

    def peer(self):
        return self._address

    async def abort(self, code, message, _):
        raise RuntimeError(f"{code.name}: {message}")


@contextlib.asynccontextmanager
async def running_app(backend, clock, scheduler_id="s1", **settings):
    made = SchedulerApp(SchedulerSettings(exchange_dir="/x", scheduler_id=scheduler_id, **settings), backend, clock)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def scheduler(backend, clock):
    async with running_app(backend, clock) as made:
        yield made


@pytest.fixture(autouse=True)
def ann():
    note_principal("ann")
    yield
    note_principal("")


async def submit(scheduler, job_id=JOB):
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await scheduler.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec), Context())


async def cancel(scheduler, job_id=JOB, reason="enough"):
    return await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=job_id, reason=reason), Context())


async def listed(scheduler, **wanted):
    return await scheduler.service.ListAudit(pb.ListAuditRequest(**wanted), Context())


async def entries_of(scheduler, **wanted):
    entries = (await listed(scheduler, **wanted)).entries
    return [(e.principal, e.address, e.scheduler_id, e.action, e.target, e.detail, e.outcome) for e in entries]


# ---------------------------------------------------------------- jobs


async def test_a_job_is_shown_with_who_submitted_it_also_by_another_scheduler(scheduler, backend, clock):
    await submit(scheduler)
    note_principal("bob")
    async with running_app(backend, clock, "s2") as other:
        (job,) = (await other.service.ListJobs(pb.ListJobsRequest(), Context())).jobs
        assert job.principal == "ann"
        await cancel(other)
        detail = await other.service.GetJob(pb.GetJobRequest(job_id=JOB), Context())
    assert JobProgress.from_message(detail.progress).principal == "ann", "after the end, too"
    assert detail.progress.failure.message == "enough, by bob"
    (job,) = (await scheduler.service.ListJobs(pb.ListJobsRequest(), Context())).jobs
    assert job.principal == "ann"


async def test_the_event_of_a_cancellation_names_who_asked(scheduler):
    await submit(scheduler)
    await cancel(scheduler)
    messages = [m async for m in scheduler.service.WatchEvents(pb.WatchEventsRequest(job_id=JOB), Context())]
    event = messages[-1].events[-1]
    assert what(JobEvent(1, 0, "s1", event.type, json.loads(event.json))) == "enough, by ann"


async def test_without_a_name_nothing_is_said(scheduler):
    note_principal("")
    await submit(scheduler)
    await cancel(scheduler)
    detail = await scheduler.service.GetJob(pb.GetJobRequest(job_id=JOB), Context())
    assert (detail.progress.principal, detail.progress.failure.message) == ("", "enough")
    messages = [m async for m in scheduler.service.WatchEvents(pb.WatchEventsRequest(job_id=JOB), Context())]
    event = messages[-1].events[-1]
    assert "principal" not in json.loads(event.json)
    assert what(JobEvent(1, 0, "s1", event.type, json.loads(event.json))) == "enough"


# ---------------------------------------------------------------- what is recorded


@pytest.mark.parametrize(
    ("sent", "address"),
    [
        ("ipv4:10.0.0.7:41234", "10.0.0.7"),
        ("ipv6:[::1]:41234", "::1"),
        ("ipv6:%5Bfe80::7%25eth0%5D:41234", "fe80::7%eth0"),
        ("unix:/run/onager", "unix:/run/onager"),
        ("elsewhere", "elsewhere"),
    ],
)
def test_a_caller_has_a_name_and_an_address_without_a_port(sent, address):
    assert caller_of(Context(sent)) == ("ann", address)


async def test_cancels_are_reported_by_every_scheduler(scheduler, backend, clock):
    await submit(scheduler)
    await cancel(scheduler)
    await cancel(scheduler, reason="again")
    async with running_app(backend, clock, "s2") as other:
        assert await entries_of(other) == [("ann", "10.0.0.7", "s1", "cancel", JOB, "enough", "done")]


async def test_removals_are_recorded_with_what_came_of_them(scheduler, clock):
    await submit(scheduler)
    remove = scheduler.service.RemoveState
    await remove(pb.RemoveStateRequest(path=f"JobHeads/{JOB}", dry_run=True), Context())
    with pytest.raises(RuntimeError, match="is in use"):
        await remove(pb.RemoveStateRequest(path=f"JobHeads/{JOB}"), Context())
    clock.advance(1)
    await remove(pb.RemoveStateRequest(path=f"JobHeads/{JOB}", force=True), Context())
    refused, done = await entries_of(scheduler)
    assert refused[3:6] == ("remove_state", f"JobHeads/{JOB}", "")
    assert refused[6].startswith(f"JobHeads/{JOB} is in use: job {JOB} is active")
    assert done[3:] == ("remove_state", f"JobHeads/{JOB}", "forced", "done: 1 removed")


async def test_a_backup_is_recorded(scheduler):
    assert [
        part async for part in scheduler.service.BackupState(pb.BackupStateRequest(format=BACKUP_FORMAT), Context())
    ]
    assert await entries_of(scheduler) == [("ann", "10.0.0.7", "s1", "backup", "memory:", "", "done")]


async def test_a_backup_that_its_caller_leaves_stays_begun(scheduler):
    parts = scheduler.service.BackupState(pb.BackupStateRequest(format=BACKUP_FORMAT), Context())
    await anext(parts)
    await parts.aclose()
    assert [entry[-1] for entry in await entries_of(scheduler)] == ["begun"]


async def test_of_a_removal_of_the_audit_its_own_record_stays(scheduler, clock):
    for n in range(300):
        async with Audit(scheduler._backend, clock, "s0").act(caller_of(Context()), "cancel", f"job-{n}"):
            pass
    remove = scheduler.service.RemoveState
    with pytest.raises(RuntimeError, match="who changed what, and when, would be forgotten"):
        await remove(pb.RemoveStateRequest(path="Audit/"), Context())
    answer = await remove(pb.RemoveStateRequest(path="Audit/", force=True), Context())
    assert (answer.removed, answer.keys) == (True, 301)
    assert [entry[3:] for entry in await entries_of(scheduler)] == [
        ("remove_state", "Audit/", "forced", "done: 301 removed")
    ]


class Failing(MemoryBackend):
    """Takes no record of the audit while it has an error."""

    error: Exception | None = None

    async def _commit(self, ops, expect):
        if self.error is not None and any(getattr(op, "keyspace", None) is Keyspace.Audit for op in ops):
            raise self.error
        return await super()._commit(ops, expect)


async def test_what_cannot_be_recorded_is_not_done(clock):
    async with Failing(MemoryStore(clock)) as backend, running_app(backend, clock) as scheduler:
        await submit(scheduler)
        backend.error = StateUnavailableError("the store is away")
        with pytest.raises(RuntimeError, match="UNAVAILABLE: the store is away"):
            await cancel(scheduler)
        with pytest.raises(RuntimeError, match="UNAVAILABLE: the store is away"):
            await scheduler.service.RemoveState(pb.RemoveStateRequest(path="JobHeads/", force=True), Context())
        (job,) = (await scheduler.service.ListJobs(pb.ListJobsRequest(), Context())).jobs
        assert job.state == pb.QUEUED
        assert await backend.scan_keys(Keyspace.JobHeads, limit=2)


async def test_a_full_store_is_emptied_all_the_same_and_the_log_has_the_record(clock):
    async with Failing(MemoryStore(clock)) as backend, running_app(backend, clock) as scheduler:
        await submit(scheduler)
        backend.error = StateFullError("the store is full")
        with capture_logs() as logs:
            await scheduler.service.RemoveState(pb.RemoveStateRequest(path="JobHeads/", force=True), Context())
        (entry,) = [entry for entry in logs if entry["event"] == "audit_record_not_stored"]
        assert (entry["principal"], entry["action"], entry["target"]) == ("ann", "remove_state", "JobHeads/")
        assert not len(await backend.scan_keys(Keyspace.JobHeads, limit=2))


async def test_an_act_says_why_it_failed(backend, clock):
    with pytest.raises(InvalidRequestError):
        async with Audit(backend, clock).act(caller_of(Context()), "cancel", JOB, "x" * 2_000):
            raise InvalidRequestError("no " * 1_000)
    (item,) = await backend.get_from_prefix(Keyspace.Audit, "")
    record = AuditRecord.decoded(item.value, item.key)
    assert (len(record.detail), len(record.outcome), record.outcome[:5]) == (1_000, 1_000, "no no")
    assert item.key.startswith(record.key_prefix)
    assert key_ms(item.key) == clock.now_ms()


# ---------------------------------------------------------------- pages


@pytest.fixture
async def many(backend, clock):
    """Return the times of 300 acts, a second apart; each third is a backup."""
    times = []
    for n in range(300):
        times.append(clock.now_ms())
        action = "backup" if n % 3 == 0 else "cancel"
        async with Audit(backend, clock, "s1").act(caller_of(Context()), action, f"job-{n % 10}"):
            clock.advance(1_000)
    return times


def flat(found):
    return [at_ms for page in found for at_ms in page]


async def pages(scheduler, **wanted):
    found = []
    cursor = ""
    while True:
        answer = await listed(scheduler, cursor=cursor, **wanted)
        found.append([entry.at_ms for entry in answer.entries])
        if not answer.next:
            return found
        cursor = answer.next


async def test_pages_are_in_the_order_of_time_and_miss_nothing(scheduler, many):
    found = await pages(scheduler, limit=70)
    assert [len(page) for page in found] == [70, 70, 70, 70, 20]
    assert flat(found) == many
    assert len((await listed(scheduler)).entries) == 100, "by default"
    assert flat(await pages(scheduler, since_ms=many[10], until_ms=many[20])) == many[10:20]
    assert await pages(scheduler, since_ms=253_402_300_799_999) == [[]]


async def test_only_what_is_asked_for_is_reported(scheduler, many):
    assert flat(await pages(scheduler, action="backup")) == many[::3]
    assert flat(await pages(scheduler, target="job-7")) == many[7::10]
    assert flat(await pages(scheduler, principal="ann", limit=500)) == many
    assert flat(await pages(scheduler, principal="bob")) == []


async def test_no_answer_reads_or_holds_more_than_its_share(scheduler, many, monkeypatch):
    monkeypatch.setattr(auditing, "_MAX_READ", 50)
    assert [len(page) for page in await pages(scheduler, target="job-7")][:6] == [5] * 6
    monkeypatch.setattr(auditing, "_MAX_BYTES", 1_000)
    found = await pages(scheduler)
    assert max(map(len, found)) < 10
    assert flat(found) == many


async def test_an_unreadable_record_hides_no_other(scheduler, backend, many):
    await backend.put(Keyspace.Audit, f"{many[3]:015d}-s1-rotten", b"{")
    (page,) = await pages(scheduler, until_ms=many[6], limit=100)
    assert len(page) == 7
    (entry,) = (await listed(scheduler, action="unreadable")).entries
    assert entry.target == f"Audit/{many[3]:015d}-s1-rotten"
    assert "cannot be read" in entry.outcome


# ---------------------------------------------------------------- retention


async def test_old_records_go_and_young_ones_stay(backend, clock, many):
    async with running_app(backend, clock, audit_retention_s=3_600) as scheduler:
        await scheduler.retention.sweep_audit()
        assert len(await backend.scan_keys(Keyspace.Audit, limit=1_000)) == 300
        clock.advance(many[200] - clock.now_ms() + 3_600_000)
        await scheduler.retention.sweep_audit()
        left = [key_ms(key) for key in await backend.scan_keys(Keyspace.Audit, limit=1_000)]
        assert left == many[201:]
        clock.advance(3_600_000)
        await scheduler.retention.sweep_audit()
        assert not len(await backend.scan_keys(Keyspace.Audit, limit=1_000))


async def test_who_comes_later_leaves_it_to_the_first_for_a_moment(scheduler, backend, clock, monkeypatch):
    monkeypatch.setattr(scheduler.precedence, "place", lambda _: 1)
    await scheduler.retention.sweep_audit()
    async with Audit(backend, clock, "s2").act(caller_of(Context()), "cancel", JOB):
        pass
    clock.advance(90 * DAY_MS)
    await scheduler.retention.sweep_audit()
    assert len(await backend.scan_keys(Keyspace.Audit, limit=2)) == 1
    clock.advance(2 * scheduler.settings.sweep_interval_ms)
    await scheduler.retention.sweep_audit()
    assert not len(await backend.scan_keys(Keyspace.Audit, limit=2))


async def test_a_sweep_without_an_audit_reads_it_once_in_a_retention(scheduler, backend, clock, monkeypatch):
    await scheduler.jobs.submit(graph(JOB))
    await scheduler.sweep()
    reads = []
    scan_keys = backend.scan_keys

    async def counting(keyspace, *args, **more):
        reads.append(keyspace)
        return await scan_keys(keyspace, *args, **more)

    monkeypatch.setattr(MemoryBackend, "scan_keys", counting)
    clock.advance(60_000)
    await scheduler.sweep()
    assert Keyspace.Audit not in reads
