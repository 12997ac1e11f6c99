"""The check of a whole store: a function of its content at one revision."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from onager.errors import StateCorruptError
from onager.scheduler.cluster.live_schedulers import SchedulerRecord
from onager.scheduler.executors.loads import ExecutorLoadRecord
from onager.scheduler.executors.place_records import PlaceRecord
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.audit import AuditRecord
from onager.scheduler.records import unpack
from onager.state_admin.checking_blobs import check_blobs
from onager.state_admin.checking_catalog import check_catalog
from onager.state_admin.checking_jobs import Job, check_jobs
from onager.state_admin.contents import StoreContents
from onager.state_admin.findings import Finding, Findings
from onager.state_admin.restoring import MARK_KEY
from onager.state_backend import Keyspace

_RESTORE_ADVICE: Final = "a restore into this store was not finished: run it again"


def check_everything(store: StoreContents) -> Iterator[Finding]:
    """Yield everything that is wrong with *store*, keyspace by keyspace; one bad record does not stop the rest."""
    found = Findings()
    if MARK_KEY in store.records[Keyspace.Admin]:
        found.error("unfinished", Keyspace.Admin, MARK_KEY, _RESTORE_ADVICE)
    jobs = check_jobs(store, found)
    yield from found
    found.clear()
    check_blobs(store, jobs, found)
    _check_executors(store, jobs, found)
    _check_schedulers(store, found)
    _check_audit(store, found)
    found.decoded(store, Keyspace.Places, PlaceRecord.decoded)
    check_catalog(store, found)
    found.decoded(store, Keyspace.Sessions, _json_of)
    yield from found


def _json_of(value: bytes, path: str) -> object:
    plain = unpack(value, path)
    if not plain.startswith(b"{"):
        return None  # a plain mark, such as an incarnation
    try:
        return json.loads(plain)
    except ValueError as error:
        raise StateCorruptError(f"{path} cannot be read: {error}") from error


def _check_schedulers(store: StoreContents, found: Findings) -> None:
    for key, record in found.decoded(store, Keyspace.Schedulers, SchedulerRecord.decoded).items():
        if record.scheduler_id != key:
            found.error("misplaced", Keyspace.Schedulers, key, f"is the record of scheduler {record.scheduler_id}")


def _check_audit(store: StoreContents, found: Findings) -> None:
    for key, record in found.decoded(store, Keyspace.Audit, AuditRecord.decoded).items():
        if not key.startswith(record.key_prefix):
            found.error("misplaced", Keyspace.Audit, key, f"is a record of {record.key_prefix[:-1]}")


def _check_executors(store: StoreContents, jobs: list[Job], found: Findings) -> None:
    hearts = store.records[Keyspace.Heartbeats]
    lives = found.decoded(store, Keyspace.Executors, ExecutorRecord.decoded)
    for key, record in lives.items():
        if record.executor_id != key:
            found.error("misplaced", Keyspace.Executors, key, f"is the record of executor {record.executor_id}")
        if record.state != "lost" and key not in hearts:
            message = "has no heartbeat: the next scheduler to look declares it lost"
            found.warn("missing", Keyspace.Executors, key, message)
    for key, item in hearts.items():
        life = lives.get(key)
        if key not in store.records[Keyspace.Executors]:
            found.warn("orphan", Keyspace.Heartbeats, key, "is the heartbeat of an executor that has no record")
        elif life is not None and life.incarnation.encode() != item.value:
            message = f"beats for incarnation {item.value.decode(errors='replace')!r}, but the executor's record says"
            found.error("inconsistent", Keyspace.Heartbeats, key, f"{message} {life.incarnation!r}")
    _check_loads(store, lives, found)
    for job in jobs:
        _check_lives(job, lives, found)


def _check_loads(store: StoreContents, lives: Mapping[str, ExecutorRecord], found: Findings) -> None:
    for key, load in found.decoded(store, Keyspace.ExecutorLoads, ExecutorLoadRecord.decoded).items():
        if load.executor_id != key:
            found.error("misplaced", Keyspace.ExecutorLoads, key, f"is the load of executor {load.executor_id}")
        if key not in store.records[Keyspace.Executors]:
            found.warn("orphan", Keyspace.ExecutorLoads, key, "is the load of an executor that has no record")
        elif key in lives and lives[key].incarnation != load.incarnation:
            found.warn(
                "orphan", Keyspace.ExecutorLoads, key, f"is the load of incarnation {load.incarnation!r}, which is over"
            )


def _check_lives(job: Job, lives: Mapping[str, ExecutorRecord], found: Findings) -> None:
    for executor_id, incarnation in sorted(job.lives):
        life = lives.get(executor_id)
        if life is None or life.incarnation != incarnation or life.state == "lost":
            message = f"has tasks with executor {executor_id} in a life ({incarnation}) that is over: "
            message += "a scheduler hands them out again"
            found.warn("inconsistent", job.keyspace, job.job_id, message)
