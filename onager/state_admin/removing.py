"""Removes records by hand, and finds what running jobs lose by it."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from onager.errors import InvalidRequestError, NotFoundError, StateUnavailableError
from onager.protocol import onager_pb2 as pb
from onager.state_admin.paths import keyspace_of
from onager.state_backend import (
    MAX_TXN_OPS,
    Committed,
    Delete,
    DeleteRange,
    Keyspace,
    StateBackendClient,
    commit_settled,
    each_page,
    split_ops,
)

_SAMPLE: Final = 10
_DANGERS_SHOWN: Final = 10
_PAGE: Final = 1_000
_TRIES: Final = 5
_RUN_AGAIN: Final = "what it runs would be run again"
_JOB_RECORDS: Final = {
    Keyspace.ActiveJobs: "nobody finds it any more",
    Keyspace.JobHeads: "no scheduler works on it any more",
    Keyspace.JobLog: "what it did since its last snapshot is forgotten, or it cannot be read",
    Keyspace.GraphChunks: "it cannot be read any more",
    Keyspace.Results: "its result is incomplete",
}


_FIRST_COME: Final = (
    "the first process that looks would decide which directory it is: stop executors that see a wrong one"
)
_PROGRAM: Final = "a program that is begun again does again what it had done: let it end"
_SESSION: Final = "programs that use the session fail, or go on without what it held: let its client end it"
_FORGOTTEN: Final = {
    Keyspace.Catalog: "the catalog would forget it; DROP in a job removes what goes with it, and knows who uses it",
    Keyspace.ConnectSessions: _SESSION,
    Keyspace.ConnectEntries: _SESSION,
    Keyspace.ConnectOperations: _SESSION,
    Keyspace.Programs: _PROGRAM,
    Keyspace.ProgramCalls: _PROGRAM,
    Keyspace.Audit: "who changed what, and when, would be forgotten; only this removal itself is recorded",
}


async def remove_records(
    backend: StateBackendClient, path: str, *, is_dry_run: bool, is_forced: bool, spared: str = ""
) -> pb.RemoveStateResponse:
    """Remove ``Keyspace/key``, or with ``/`` at the end all keys below it in one operation.

    Of the audit, the record *spared* stays, which tells of this very removal; so all others go in portions.
    With *is_dry_run* only return what would be removed. `NotFoundError` when nothing is there; `InvalidRequestError`
    when running jobs or executors need it, unless *is_forced*.
    """
    keyspace, key, is_prefix = _target(path)
    for _ in range(_TRIES):
        response, revision = await _look(backend, path, keyspace, key, is_prefix=is_prefix, spared=spared)
        if is_dry_run:
            return response
        if response.dangers and not is_forced:
            raise InvalidRequestError(
                f"{path} is in use: {'; '.join(response.dangers)}. Use --force to remove it all the same"
            )
        if is_prefix and keyspace is Keyspace.Audit:
            response.keys = await _remove_each(backend, keyspace, key, spared)
            response.removed = True
            return response
        op = DeleteRange(keyspace, key) if is_prefix else Delete(keyspace, key)
        result = await commit_settled(backend, [op], {} if is_prefix else {(keyspace, key): revision})
        if isinstance(result, Committed):  # else it changed since the check: check again
            response.removed = True
            response.keys = result.deleted or response.keys
            return response
    raise StateUnavailableError(f"{path} changes all the time, and was not removed; try again")


def _target(path: str) -> tuple[Keyspace, str, bool]:
    name, slash, key = path.partition("/")
    keyspace = keyspace_of(name)
    if not slash:
        raise InvalidRequestError(f"{path!r} names a whole keyspace: say {path}/ to remove everything in it")
    return keyspace, key, not key or key.endswith("/")


async def _look(
    backend: StateBackendClient, path: str, keyspace: Keyspace, key: str, *, is_prefix: bool, spared: str
) -> tuple[pb.RemoveStateResponse, int]:
    if is_prefix:
        keys = [found async for found in _keys(backend, keyspace, key) if (keyspace, found) != (Keyspace.Audit, spared)]
        revision = 0
    else:
        found = await backend.get(keyspace, key)
        keys = [] if found is None else [key]
        revision = 0 if found is None else found.mod_revision
    if not keys:
        hint = "" if is_prefix else f"; say {path}/ for all keys below it"
        raise NotFoundError(f"there is nothing to remove: {path} is not in the store{hint}")
    dangers = await _dangers(backend, keyspace, keys)
    more = len(dangers) - _DANGERS_SHOWN
    return pb.RemoveStateResponse(
        keys=len(keys),
        sample=[f"{keyspace}/{found}" for found in keys[:_SAMPLE]],
        dangers=dangers[:_DANGERS_SHOWN] + ([f"and {more} more"] if more > 0 else []),
    ), revision


async def _keys(backend: StateBackendClient, keyspace: Keyspace, prefix: str) -> AsyncIterator[str]:
    async for page in each_page(backend.scan_keys, keyspace, prefix, limit=_PAGE):
        for key in page:
            yield key


async def _remove_each(backend: StateBackendClient, keyspace: Keyspace, prefix: str, spared: str) -> int:
    keys = [key async for key in _keys(backend, keyspace, prefix) if key != spared]
    for some in split_ops(Delete(keyspace, key) for key in keys):
        await commit_settled(backend, some, {})
    return len(keys)


async def _dangers(backend: StateBackendClient, keyspace: Keyspace, keys: Iterable[str]) -> list[str]:  # noqa: PLR0911 - one case a kind
    """Return a sentence for each running job, living executor or running work that needs one of *keys*."""
    match keyspace:
        case Keyspace.ActiveJobs | Keyspace.JobHeads | Keyspace.JobLog | Keyspace.GraphChunks | Keyspace.Results:
            jobs = dict.fromkeys(key.partition("/")[0] for key in keys)
            active = await _present(backend, Keyspace.ActiveJobs, jobs)
            return [f"job {job_id} is active, and without it {_JOB_RECORDS[keyspace]}" for job_id in active]
        case Keyspace.Plans:
            digests = dict.fromkeys(key.partition("/")[0] for key in keys)
            references = [ref for digest in digests async for ref in _keys(backend, keyspace, f"{digest}/ref/")]
            jobs = dict.fromkeys(reference.rpartition("/")[2] for reference in references)
            active = await _present(backend, Keyspace.ActiveJobs, jobs)
            return [f"job {job_id} is active, and needs this plan, specification or manifest" for job_id in active]
        case Keyspace.Executors | Keyspace.Heartbeats:
            alive = await _present(backend, Keyspace.Heartbeats, dict.fromkeys(keys))
            return [f"executor {executor_id} is alive, and {_RUN_AGAIN}" for executor_id in alive]
        case Keyspace.Schedulers:
            return [f"scheduler {key} is running" for key in keys]
        case Keyspace.Locks:
            return [f"{key} is bound to a lease: it goes by itself when that ends, at the latest" for key in keys]
        case Keyspace.Admin:
            return [f"{key} marks work that was not finished: see onager state get Admin/{key}" for key in keys]
        case Keyspace.Places:
            alive = [key async for key in _keys(backend, Keyspace.Heartbeats, "")]
            return [f"executor {executor_id} is alive, and {_FIRST_COME}" for executor_id in alive]
        case (
            Keyspace.Catalog
            | Keyspace.ConnectSessions
            | Keyspace.ConnectEntries
            | Keyspace.ConnectOperations
            | Keyspace.Programs
            | Keyspace.ProgramCalls
            | Keyspace.Audit
        ):
            return [_FORGOTTEN[keyspace]]
        case (
            Keyspace.Sessions | Keyspace.CompletedJobs | Keyspace.FailedJobs | Keyspace.History | Keyspace.ExecutorLoads
        ):
            return []


async def _present(backend: StateBackendClient, keyspace: Keyspace, keys: Iterable[str]) -> list[str]:
    """Return those of *keys* that are there, sorted."""
    wanted = sorted(keys)
    found: list[str] = []
    for start in range(0, len(wanted), MAX_TXN_OPS):
        some = [(keyspace, key) for key in wanted[start : start + MAX_TXN_OPS]]
        found += [key for (_, key), value in (await backend.read_txn(some)).values.items() if value is not None]
    return found
