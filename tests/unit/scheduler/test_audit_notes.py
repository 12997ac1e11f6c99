"""Everyday acts in the audit: each is told, much of one kind together, and nothing of it fills the store."""

import pytest

from onager.errors import StateUnavailableError, TokenRefusedError
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import Caller
from onager.scheduler import timing
from onager.scheduler.jobs.audit_notes import FETCH, MAX_EACH, MAX_GROUPS, SUBMIT, AuditNotes, is_note
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.unit.scheduler.test_audit import JOB, Context, ann, cancel, listed, replica, scheduler, submit, told

__all__ = ["ann", "scheduler"]  # fixtures

ANN = Caller("ann", "10.0.0.7")


@pytest.fixture
def notes(backend, clock):
    return AuditNotes(backend, clock, "s1", is_on=True)


async def records(scheduler, **wanted):
    await scheduler.notes.store()
    return await told(scheduler, **wanted)


async def test_a_submission_is_told_with_who_made_it_and_from_where(scheduler):
    await submit(scheduler)
    await submit(scheduler)
    assert await records(scheduler) == [("ann", "10.0.0.7", "s1", "submit", JOB, "", "done")]
    assert await records(scheduler) == await told(scheduler), "it is stored once"


async def test_acts_that_ask_before_they_act_stand_beside(scheduler, backend, clock):
    await submit(scheduler)
    clock.advance(1)
    await cancel(scheduler)
    assert [entry[3] for entry in await records(scheduler)] == ["submit", "cancel"]
    keys = (await backend.scan_keys(Keyspace.Audit, limit=10)).items
    assert [is_note(key) for key in keys] == [True, False]


async def test_much_of_one_kind_is_one_record_with_its_number(notes, backend, clock):
    for number in range(1000):
        notes.note(ANN, SUBMIT, f"job-{number}")
        clock.advance(1)
    await notes.store()
    assert len((await backend.scan_keys(Keyspace.Audit, limit=100)).items) == MAX_EACH + 1
    assert not notes._acts


async def test_what_the_one_record_says(scheduler, clock):
    for number in range(8):
        scheduler.notes.note(ANN, FETCH, f"job-{number}")
        clock.advance(1)
    found = await records(scheduler, action="fetch")
    assert [entry[4] for entry in found] == [*(f"job-{n}" for n in range(5)), ""]
    assert found[-1][5] == "3 more, of: job-5, job-6, job-7"


async def test_a_flood_from_everywhere_is_a_few_records(notes, backend):
    for number in range(20_000):
        notes.refused(
            Caller(peer=f"10.1.{number // 256}.{number % 256}"),
            "/onager.v1.OnagerScheduler/SubmitJob",
            TokenRefusedError(),
        )
    assert len(notes._acts) <= MAX_GROUPS + 1
    await notes.store()
    assert len((await backend.scan_keys(Keyspace.Audit, limit=1000)).items) <= (MAX_GROUPS + 1) * (MAX_EACH + 1)


async def test_what_cannot_be_stored_is_told_later_as_a_number(scheduler, monkeypatch):
    for number in range(7):
        scheduler.notes.note(ANN, SUBMIT, f"job-{number}")

    async def down(*_):
        raise StateUnavailableError("down")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryBackend, "put_all", down)
        await scheduler.notes.store()
    scheduler.notes.note(ANN, SUBMIT, "job-7")
    found = await records(scheduler)
    assert found[0][4] == "job-7" or found[1][4] == "job-7"
    (many,) = (entry[5] for entry in found if not entry[4])
    assert many.startswith("7 more, of: job-0, job-1")


async def test_the_oldest_everyday_acts_go_beyond_their_limit_and_no_other(backend, clock):
    async with replica(backend, clock, audit_max_notes=3) as made:
        await submit(made)
        await cancel(made)
        for number in range(5):
            clock.advance(1)
            made.notes.note(ANN, FETCH, f"job-{number}")
        await made.notes.store()
        clock.advance(int(1000 * timing.AUDIT_COUNTED_S))
        await made.retention.limit_audit()
        assert [(entry[3], entry[4]) for entry in await told(made)] == [
            ("cancel", JOB),
            *(("fetch", f"job-{n}") for n in (2, 3, 4)),
        ]


async def test_they_can_be_switched_off(backend, clock):
    async with replica(backend, clock, audit_max_notes=0) as made:
        await submit(made)
        assert await records(made) == []


async def test_a_scheduler_that_stops_stores_what_it_has_noted(backend, clock):
    async with replica(backend, clock) as made:
        await submit(made)
    async with replica(backend, clock, "s2") as other:
        (entry,) = (await listed(other, action="submit")).entries
        assert (entry.scheduler_id, entry.target) == ("s1", JOB)


async def test_a_caller_without_a_name_is_told_by_its_address(scheduler):
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    request = pb.SubmitJobRequest(job_id="job-9", spec=spec).SerializeToString()
    await scheduler.service.SubmitJob(request, Context("ipv4:192.0.2.9:1"))
    (entry,) = await records(scheduler)
    assert entry[:2] == ("ann", "192.0.2.9")
