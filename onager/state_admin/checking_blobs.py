"""The check of blobs and results, and of those that jobs need."""

from collections import defaultdict
from functools import partial
from typing import Final

from onager.errors import StateCorruptError
from onager.execution_graph import JobState
from onager.scheduler.jobs.blobs import BlobMeta, blobs_of, digest_of
from onager.scheduler.records import unpack
from onager.state_admin.checking_jobs import Job
from onager.state_admin.contents import StoreContents
from onager.state_admin.decoding import decoded
from onager.state_admin.findings import Findings
from onager.state_backend import Keyspace, KeyValue

_PLANS: Final = Keyspace.Plans


def check_blobs(store: StoreContents, jobs: list[Job], found: Findings) -> None:
    """Add the errors of blobs and results to *found*."""
    blobs: defaultdict[str, dict[str, KeyValue]] = defaultdict(dict)
    for key, item in store.records[_PLANS].items():
        digest, _, rest = key.partition("/")
        blobs[digest][rest] = item
    known = {*store.records[Keyspace.JobHeads], *(job.job_id for job in jobs)}
    for digest, parts in blobs.items():
        _check_blob(digest, parts, known, found)
    for job in jobs:
        _check_needs(job, blobs, found)
    _check_results(store, jobs, known, found)


def _check_blob(digest: str, parts: dict[str, KeyValue], known: set[str], found: Findings) -> None:
    chunks = {name for name in parts if name.isdecimal()}
    references = {name.removeprefix("ref/") for name in parts if name.startswith("ref/")}
    for name in parts.keys() - chunks - {"meta"} - {f"ref/{job_id}" for job_id in references}:
        found.error("misplaced", _PLANS, f"{digest}/{name}", "is no part of a blob: neither meta, nor chunk, nor ref")
    for job_id in sorted(references - known):
        message = f"the blob is kept for job {job_id}, which is not there; schedulers collect it after a while"
        found.warn("orphan", _PLANS, f"{digest}/ref/{job_id}", message)
    if "meta" not in parts:
        if references:
            found.error("missing", _PLANS, f"{digest}/meta", "jobs name the blob, but its description is not there")
        else:
            found.warn("orphan", _PLANS, f"{digest}/", f"{len(chunks)} chunks of a blob that was not stored to the end")
        return
    if not references:
        found.warn("orphan", _PLANS, f"{digest}/", "no job names the blob")
    meta = found.read(_PLANS, f"{digest}/meta", lambda: BlobMeta.decoded(parts["meta"].value, f"blob {digest}"))
    if meta is not None:
        _check_content(digest, parts, meta, found)


def _check_content(digest: str, parts: dict[str, KeyValue], meta: BlobMeta, found: Findings) -> None:
    pieces: list[bytes] = []
    for n in range(meta.chunks):
        key = f"{digest}/{n}"
        if str(n) not in parts:
            found.error("missing", _PLANS, key, f"the blob has {meta.chunks} chunks, and this one is not there")
            continue
        piece = found.read(_PLANS, key, partial(unpack, parts[str(n)].value, f"chunk {key}"))
        if piece is not None:
            pieces.append(piece)
    if len(pieces) == meta.chunks and digest_of(b"".join(pieces)) != digest:
        found.error("undecodable", _PLANS, f"{digest}/", "the blob's content has another digest than its name")


def _check_needs(job: Job, blobs: dict[str, dict[str, KeyValue]], found: Findings) -> None:
    if job.graph is None:
        return
    for digest in sorted(blobs_of(job.graph)):
        parts = blobs.get(digest)
        if parts is None:
            found.error("missing", _PLANS, f"{digest}/", f"job {job.job_id} needs the blob, and it is not there")
        elif f"ref/{job.job_id}" not in parts:
            message = f"job {job.job_id} needs the blob, but is not among those that it is kept for"
            found.error("missing", _PLANS, f"{digest}/ref/{job.job_id}", message)


def _check_results(store: StoreContents, jobs: list[Job], known: set[str], found: Findings) -> None:
    results = store.records[Keyspace.Results]
    for job in jobs:
        stage = None if job.graph is None else job.graph.result_stage
        if job.graph is None or stage is None:
            continue
        is_kept = job.graph.is_active or job.graph.state is JobState.SUCCESSFUL
        if not is_kept or (job.head is not None and not job.head.has_result):
            continue
        for partition, output in sorted(stage.ledger.outputs.items()):
            key = f"{job.job_id}/{partition:08d}/{output.nonce}"
            if output.is_inline and key not in results:
                message = f"partition {partition} of the result of job {job.job_id} is not there"
                found.error("missing", Keyspace.Results, key, message)
    found.decoded(store, Keyspace.Results, _whole)
    for key in results:
        if key.partition("/")[0] not in known:
            found.warn("orphan", Keyspace.Results, key, "is a result of a job that is not there")


def _whole(value: bytes, path: str) -> str:
    try:
        return decoded(Keyspace.Results, path.partition("/")[2], value)
    except ValueError as error:
        raise StateCorruptError(f"{path} cannot be read: {error}") from error
