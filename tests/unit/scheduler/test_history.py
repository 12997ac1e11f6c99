"""What a job did, beyond the log that its snapshots and its end remove."""

import errno
import io
import json
import os
from pathlib import Path

import pytest
import zstandard
from structlog.testing import capture_logs

from onager.clock import ManualClock
from onager.errors import DiskError, JobNotFoundError
from onager.execution_graph import JobCancelled, JobState, apply_all, decode_batch
from onager.ids import JobId
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.engine.bundles import Env
from onager.scheduler.engine.retention import Retention
from onager.scheduler.jobs import history, job_store
from onager.scheduler.jobs.archive import HistoryArchive
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.job_store import Lost
from onager.scheduler.jobs.recent_batches import RecentBatches
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from tests.support.disks import settled
from tests.unit.scheduler.parts import stored, view
from tests.unit.scheduler.small_graphs import append, graph, keys, store, succeeded
from tests.unit.scheduler.test_job_store import running, step

JOB = JobId("job-1")


def of(backend):
    return JobHistory(backend, RecentBatches(ManualClock()))


async def whole(backend, limit=1, after=0):
    """Read a history page by page."""
    found = []
    while page := await of(backend).after(JOB, found[-1].position if found else after, limit):
        found += page
    return found


def replayed(entries):
    """The graph that the entries lead to."""
    return apply_all(graph(), [event for entry in entries for event in entry.batch.events])


@pytest.fixture
def short_logs(monkeypatch):
    """Snapshots, and parts of the history, after a few batches."""
    monkeypatch.setattr(job_store, "SNAPSHOT_MIN_LOG_BYTES", 1)
    monkeypatch.setattr(job_store, "SNAPSHOT_LOG_RATIO", 1)
    monkeypatch.setattr(history, "_PART_BYTES", 1_000)


@pytest.mark.parametrize("inline_ops", [0, 64], ids=["parts before", "one transaction"])
async def test_the_history_of_a_job_leads_to_its_graph_before_and_after_its_end(
    backend, clock, short_logs, monkeypatch, inline_ops
):
    monkeypatch.setattr(job_store, "_INLINE_OPS", inline_ops)
    jobs = store(backend, clock)
    job = await running(jobs, 100)
    for partition in range(99):
        job = await step(jobs, job, [succeeded(1, partition)])
    assert job.header.generation > 2, "there were snapshots"
    assert len(await keys(backend, Keyspace.History)) > job.header.generation
    assert await keys(backend, Keyspace.JobLog), "and there is a log"
    found = await whole(backend)
    assert [entry.position for entry in found] == list(range(1, job.seq + 1))
    assert replayed(found) == job.graph
    job = await step(jobs, job, [succeeded(1, 99)])
    assert not await keys(backend, Keyspace.JobLog)
    found = await whole(backend, limit=7)
    assert [entry.position for entry in found] == list(range(1, job.seq + 1))
    assert replayed(found) == job.graph


async def test_a_page_begins_at_any_position(backend, clock, short_logs):
    jobs = store(backend, clock)
    job = await running(jobs, 30)
    for partition in range(20):
        job = await step(jobs, job, [succeeded(1, partition)])
    for after in range(job.seq + 1):
        found = await whole(backend, after=after)
        assert [entry.position for entry in found] == list(range(after + 1, job.seq + 1))


async def test_it_says_who_wrote(backend, clock):
    first = store(backend, clock, "s1")
    await running(first, 3)
    second = store(backend, clock, "s2")
    await step(second, await second.load(JOB), [JobCancelled(reason="enough", at_ms=8)])
    writers = [entry.batch.writer for entry in await whole(backend)]
    assert writers == ["s1"] * (len(writers) - 1) + ["s2"]


async def test_who_loses_the_end_leaves_nothing_in_the_history(backend, clock, short_logs):
    late, jobs = store(backend, clock, "late"), store(backend, clock, "s1")
    stale = await running(late, 3)
    job = await step(jobs, await jobs.load(JOB), [succeeded(1, 0)])
    job = await step(jobs, job, [JobCancelled(reason="enough", at_ms=8)])
    assert isinstance(await append(late, stale, [JobCancelled(reason="too late", at_ms=9)]), Lost)
    found = await whole(backend)
    assert replayed(found) == job.graph
    assert found[-1].batch.writer == "s1"


@pytest.mark.parametrize(
    ("above_bytes", "at", "rotten"),
    [
        (0, 1, lambda value: value[: len(value) // 2] + b"\x9f\x07\x1b"),
        (2**20, 1, lambda value: value[: len(value) // 2] + b"\x9f\x07\x1b"),
        (2**20, 5, lambda value: value[:-1]),
        (2**20, -1, lambda value: value[:9] + b"\n" + value[10:]),
    ],
    ids=["compressed", "half", "no end", "two lines"],
)
async def test_a_job_in_memory_ends_though_a_batch_of_its_log_has_rotted(
    backend, clock, monkeypatch, above_bytes, at, rotten
):
    """It waited for ever: its end could not be written, and nobody was notified."""
    monkeypatch.setattr(job_store, "COMPRESS_BATCH_ABOVE_BYTES", above_bytes)
    jobs = store(backend, clock)
    job = await running(jobs, 10)
    for partition in range(9):
        job = await step(jobs, job, [succeeded(1, partition)])
    driver = store(backend, clock, "s2")
    job = await driver.load(JOB)
    entries = (await backend.scan(Keyspace.JobLog, "job-1/", limit=100)).items
    await backend.put(Keyspace.JobLog, entries[at].key, rotten(entries[at].value))
    with capture_logs() as logs:
        job = await step(driver, job, [succeeded(1, 9)])
    assert job.graph.state is JobState.SUCCESSFUL
    assert [entry["batch"] for entry in logs if entry["event"] == "batch_not_kept"] == [entries[at].key]
    assert (await store(backend, clock).load(JOB)).graph == job.graph
    gone = int(entries[at].key.rpartition("/")[2])
    found = await whole(backend)
    assert [entry.position for entry in found] == list(range(1, job.seq + 1))
    assert [entry.position for entry in found if entry.batch is None] == [gone]


async def test_what_was_not_kept_is_reported(backend, clock, short_logs):
    jobs = store(backend, clock)
    job = await running(jobs, 100)
    for partition in range(100):
        job = await step(jobs, job, [succeeded(1, partition)])
    parts = sorted(await keys(backend, Keyspace.History))
    gone, after = (int(part.rpartition("/")[2]) for part in parts[1:3])
    await backend.delete(Keyspace.History, history.key(JOB, gone))
    found = await whole(backend)
    assert [(entry.position, entry.batch) for entry in found if entry.batch is None] == [(after - 1, None)]
    assert [entry.position for entry in found] == [*range(1, gone), *range(after - 1, job.seq + 1)]


async def test_a_job_that_is_not_there_has_no_history(backend):
    with pytest.raises(JobNotFoundError):
        await of(backend).after(JobId("none"), 0, 10)


# ---------------------------------------------------------------- retention


@pytest.fixture
def keeper(backend, clock, tmp_path):
    """Return what removes histories after an hour and records after two, with an archive or without."""

    def make(archive=None):
        settings = SchedulerSettings(
            result_retention_s=1800, history_retention_s=3600, record_retention_s=7200, history_dir=archive
        )
        jobs = store(backend, clock, "s1")
        schedulers = LiveSchedulers(backend, clock, scheduler_id="s1", address="", lease_ttl_s=1)
        blobs = BlobStore(backend)
        made = Retention(Env(settings, clock), stored(backend, jobs, clock, blobs), view(schedulers))
        jobs.heads.listen(made.on_head)
        return jobs, made

    return make


async def ended(jobs, clock):
    job = await running(jobs, 3)
    return await step(jobs, job, [JobCancelled(reason="enough", at_ms=clock.now_ms())])


async def sweep(jobs, retention, clock, seconds):
    clock.advance(1000 * seconds)
    for _ in range(3):
        await retention.sweep()
        for head in list(jobs.heads):
            if head.clean_up != "none":
                await jobs.heads.put([head.model_copy(update={"clean_up": "none"})])
        clock.advance(10)


async def test_a_history_goes_after_its_retention_and_the_job_stays_known(backend, clock, keeper):
    jobs, retention = keeper()
    await ended(jobs, clock)
    await sweep(jobs, retention, clock, 1801)
    assert await keys(backend, Keyspace.History)
    await sweep(jobs, retention, clock, 1801)
    assert not await keys(backend, Keyspace.History)
    assert jobs.heads.get(JOB).has_history is False
    (gone,) = await whole(backend)
    assert (gone.position, gone.batch) == (jobs.cached(JOB).seq, None)
    await sweep(jobs, retention, clock, 3601)
    assert jobs.heads.get(JOB) is None


async def test_an_archive_has_what_leaves_the_store(backend, clock, keeper, tmp_path):
    jobs, retention = keeper(tmp_path / "history")
    await ended(jobs, clock)
    found = await whole(backend)
    await sweep(jobs, retention, clock, 3601)
    await sweep(jobs, retention, clock, 1)
    assert not await keys(backend, Keyspace.History)
    (path,) = (path for path in (tmp_path / "history").rglob("*") if path.is_file())
    assert path.name == "job-1.ndjson.zst"
    with zstandard.open(path, "rb") as file:
        head, *lines = file.read().splitlines()
    assert json.loads(head)["state"] == "cancelled"
    assert [decode_batch(line) for line in lines] == [entry.batch for entry in found]


async def test_an_archived_history_is_on_its_disk_with_the_directories_that_name_it(
    backend, clock, keeper, tmp_path, monkeypatch
):
    synced = []

    def fsync(number):
        path = Path(f"/proc/self/fd/{number}").readlink()
        synced.append((path, sorted(each.name for each in path.iterdir()) if path.is_dir() else None))

    jobs, _ = keeper()
    await ended(jobs, clock)
    monkeypatch.setattr(os, "fsync", fsync)
    path = await HistoryArchive(backend, tmp_path / "history").write(jobs.heads.get(JOB))
    assert synced[0][1] is None, "the file itself comes first"
    assert synced[1:] == [
        (tmp_path, ["history"]),
        (tmp_path / "history", [path.parent.name]),
        (path.parent, [path.name]),
    ]


async def test_a_job_stays_while_its_history_cannot_be_archived(backend, clock, keeper, tmp_path):
    (tmp_path / "file").write_text("no directory")
    jobs, retention = keeper(tmp_path / "file")
    await ended(jobs, clock)
    with capture_logs() as logged:
        await sweep(jobs, retention, clock, 9000)
    assert {line["event"] for line in logged if line["log_level"] == "error"} == {"history_not_archived"}
    assert await keys(backend, Keyspace.History)
    (tmp_path / "file").unlink()
    await sweep(jobs, retention, clock, 1)
    assert not await keys(backend, *(k for k in Keyspace))
    assert len(list((tmp_path / "file").rglob("*.zst"))) == 1


async def test_an_archive_whose_last_bytes_do_not_fit_leaves_no_file(backend, clock, keeper, tmp_path, monkeypatch):
    class FullDisk(io.FileIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "no space left on device")

    jobs, _ = keeper()
    await ended(jobs, clock)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, _: io.BufferedWriter(FullDisk(self, "w"), 2**20))
        with pytest.raises(DiskError, match="no space left"):
            await HistoryArchive(backend, tmp_path / "history").write(jobs.heads.get(JOB))
        await settled()
    assert not [path for path in (tmp_path / "history").rglob("*") if path.is_file()]
