"""Everyday acts in the audit: each is reported, much of one kind together, and nothing of it fills the store."""

import pytest

from onager.access_errors import TokenRefusedError
from onager.errors import StateUnavailableError
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import Caller
from onager.protocol.security.principal import note_principal
from onager.scheduler import timing
from onager.scheduler.catalog.changes import encoded
from onager.scheduler.jobs.audit_notes import FETCH, MAX_EACH, MAX_GROUPS, SUBMIT, AuditNotes, is_note
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.support.catalogs import changes, put, table, with_catalog
from tests.unit.scheduler.small_graphs import SLOT, planned
from tests.unit.scheduler.test_audit import (
    JOB,
    Context,
    ann,
    cancel,
    entries_of,
    listed,
    running_app,
    scheduler,
    submit,
)

__all__ = ["ann", "scheduler"]  # fixtures

ANN = Caller("ann", "10.0.0.7")


@pytest.fixture
def notes(backend, clock):
    return AuditNotes(backend, clock, "s1", is_on=True)


async def records(scheduler, **wanted):
    await scheduler.notes.store()
    return await entries_of(scheduler, **wanted)


async def test_a_submission_is_reported_with_who_made_it_and_from_where(scheduler):
    await submit(scheduler)
    await submit(scheduler)
    assert await records(scheduler) == [("ann", "10.0.0.7", "s1", "submit", JOB, "", "done")]
    assert await records(scheduler) == await entries_of(scheduler), "it is stored once"


async def end(scheduler, event, job_id=JOB):
    """Have a job planned: it ends with that."""
    await scheduler.local.fill_reservations(job_id, [ExecutorReservation.of(SLOT)])
    await scheduler.writers.record_decision(job_id, lambda _: Decision([event]))


async def fetch(scheduler, job_id=JOB):
    return [chunk async for chunk in scheduler.service.FetchResult(pb.FetchResultRequest(job_id=job_id), Context())]


async def test_a_result_that_is_fetched_is_reported_and_one_that_is_not_there_is_not(scheduler):
    await submit(scheduler)
    with pytest.raises(RuntimeError, match="once it is successful"):
        await fetch(scheduler)
    await end(scheduler, planned(0))
    assert await records(scheduler, action="fetch") == []
    assert await fetch(scheduler)
    assert await records(scheduler, action="fetch") == [("ann", "10.0.0.7", "s1", "fetch", JOB, "", "done")]


async def test_tables_that_a_job_changes_are_reported_with_who_submitted_it(scheduler):
    content = encoded(changes(put("tables/default/t", table()), put("tables/default/u", table("00000000000000bb"))))
    for job_id in ("job-2", JOB):
        await submit(scheduler, job_id)
        await scheduler.blobs.put(job_id, [content])
    await cancel(scheduler, "job-2")
    note_principal("")  # the scheduler does it by itself, when the job ends
    await end(scheduler, with_catalog(planned(0), digest_of(content)))
    detail = "tables/default/t, tables/default/u"
    assert await records(scheduler, action="change_tables") == [("ann", "", "s1", "change_tables", JOB, detail, "done")]


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
            Caller(address=f"10.1.{number // 256}.{number % 256}"),
            "/onager.v1.OnagerScheduler/SubmitJob",
            TokenRefusedError(),
        )
    assert len(notes._acts) <= MAX_GROUPS + 1
    await notes.store()
    assert len((await backend.scan_keys(Keyspace.Audit, limit=1000)).items) <= (MAX_GROUPS + 1) * (MAX_EACH + 1)


async def test_what_cannot_be_stored_is_reported_later_as_a_number(scheduler, monkeypatch):
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
    async with running_app(backend, clock, audit_max_notes=3) as made:
        await submit(made)
        await cancel(made)
        for number in range(5):
            clock.advance(1)
            made.notes.note(ANN, FETCH, f"job-{number}")
        await made.notes.store()
        clock.advance(int(1000 * timing.AUDIT_COUNTED_S))
        await made.retention.limit_audit()
        assert [(entry[3], entry[4]) for entry in await entries_of(made)] == [
            ("cancel", JOB),
            *(("fetch", f"job-{n}") for n in (2, 3, 4)),
        ]


async def test_they_can_be_switched_off(backend, clock):
    async with running_app(backend, clock, audit_max_notes=0) as made:
        await submit(made)
        assert await records(made) == []


async def test_a_scheduler_that_stops_stores_what_it_has_noted(backend, clock):
    async with running_app(backend, clock) as made:
        await submit(made)
    async with running_app(backend, clock, "s2") as other:
        (entry,) = (await listed(other, action="submit")).entries
        assert (entry.scheduler_id, entry.target) == ("s1", JOB)


async def test_a_caller_without_a_name_is_reported_by_its_address(scheduler):
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    request = pb.SubmitJobRequest(job_id="job-9", spec=spec).SerializeToString()
    await scheduler.service.SubmitJob(request, Context("ipv4:192.0.2.9:1"))
    (entry,) = await records(scheduler)
    assert entry[:2] == ("ann", "192.0.2.9")
