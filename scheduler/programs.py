"""Programs that outlive their processes, and the attempt of each that counts.

``Programs/OWNER/ID`` is the record of a program. Only the beginning of an attempt, and the end, change it. Each write
of a call expects it as the call's attempt has left it: so an earlier attempt, which perhaps just woke up, changes
nothing.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from onager.clock import Clock
from onager.errors import InvalidRequestError, OnagerError, StateUnavailableError
from onager.ids import may_be_drawn
from onager.protocol import onager_pb2 as pb
from onager.scheduler.outcome_files import OutcomeFiles
from onager.scheduler.program_limits import ProgramUsages, Usage
from onager.scheduler.program_records import (
    FailedCall,
    Mending,
    ProgramKey,
    ProgramRecord,
    RetriedFrom,
    digest_of,
    is_secret,
    knows,
    superseded,
    unknown,
)
from onager.scheduler.records import NOTHING_MORE, Extra
from onager.state_backend import (
    ABSENT,
    Committed,
    Delete,
    DeleteRange,
    Keyspace,
    Op,
    Put,
    StateBackendClient,
    commit_settled,
    each_page,
)

log = structlog.get_logger(__name__)

MAX_BARREN: Final = 4
"""Attempts in a row that record nothing new end a program."""
MAX_LOST: Final = 16
"""More than a restart of all executors, one after the other, costs a program: it mostly goes on behind it."""
_BARREN_MS: Final = 60_000
"""An attempt that lived longer was not in vain: perhaps it waited for a call."""
_TRIES: Final = 20
_PAGE: Final = 500


class KnownPrograms(NamedTuple):
    """The programs of which there are records, by their paths."""

    going_on: set[str]
    """Those that have not ended."""
    resting: set[str]
    """Those that have ended, and that a retry may go on with."""
    folders: set[str] | None
    """The folders of all; None if a record cannot be read."""


class Programs:
    """The programs of all owners."""

    def __init__(
        self,
        backend: StateBackendClient,
        clock: Clock,
        usages: ProgramUsages,
        files: OutcomeFiles,
        *,
        retention_s: int,
    ) -> None:
        """A program is forgotten *retention_s* after its end."""
        self._backend = backend
        self._clock = clock
        self.usages = usages
        self.files = files
        self._retention_ms = retention_s * 1000
        self.restore: Callable[[ProgramRecord], Awaitable[Extra]] = _nothing_more
        """Returns what puts the sessions of a program back to what they were before it was mended."""
        self.is_matching: Callable[[ProgramRecord], Awaitable[bool]] = _is_not
        """Returns whether a mended program has not made all writes again that are done."""

    # ---------------------------------------------------------------- attempts

    async def begin(
        self,
        owner: str,
        request: pb.BeginProgramRequest,
        *,
        job_id: str = "",
        host: str = "",
        is_there: Callable[[str], bool] = lambda _: True,
        check: Callable[[], Awaitable[object]] | None = None,
    ) -> pb.BeginProgramResponse:
        """Begin an attempt, which counts from now on, alone; the same request again is the same attempt.

        Nothing begins of a program that has ended, and one is ended whose attempts record nothing; of those whose
        executor is gone it takes more.

        *job_id*: the job that it is; *host*: the life of the executor that begins it; *is_there* says whether one still
        is. *check* raises what stands against it, each time that the record was read.
        """
        key = ProgramKey(owner, request.program_id)
        if not may_be_drawn(key.program_id):
            raise InvalidRequestError("the id of a program is 1 to 63 of a-z 0-9 -, and begins with a letter or digit")
        if not is_secret(request.secret):
            raise InvalidRequestError("the secret of an attempt is 32 to 64 of 0-9 a-f")
        for _ in range(_TRIES):
            before, revision = await self.read(key)
            if before is not None:
                _check_same(before, request)
            if check is not None:
                await check()
            usage = await self.usages.count(key.path)
            if before is not None and (before.ended_ms or knows(before, request.secret)):
                return begun(before, usage.calls)
            if before is None:
                record = self._first(key, request, host)
            else:
                is_lost = bool(before.host) and not is_there(before.host)
                record = self._next(before, request.secret, usage, host, is_lost=is_lost)
            record = record.model_copy(update={"job_id": job_id})
            if await self._written(record, revision):
                log.info("program_attempt", program_id=key.program_id, attempt=record.attempt, calls=usage.calls)
                return begun(record, usage.calls)
        raise StateUnavailableError(f"attempts of program {key.program_id} begin too often: try again")

    def _first(self, key: ProgramKey, request: pb.BeginProgramRequest, host: str) -> ProgramRecord:
        now_ms = self._clock.now_ms()
        return ProgramRecord(
            owner=key.owner,
            program_id=key.program_id,
            user=key.owner or request.user,
            seed=secrets.token_hex(16),
            digest=request.digest,
            arguments=request.arguments,
            attempt=1,
            secret_digest=digest_of(request.secret),
            began_ms=now_ms,
            attempt_ms=now_ms,
            host=host,
        )

    def _next(self, before: ProgramRecord, secret: str, usage: Usage, host: str, *, is_lost: bool) -> ProgramRecord:
        """Return the record with the next attempt, or with the end; *is_lost*: the executor of the last one is gone."""
        now_ms = self._clock.now_ms()
        barren, lost, why = before.barren, before.lost, ""
        if usage.calls != before.calls_before or now_ms - before.attempt_ms >= _BARREN_MS:
            barren = lost = 0
        elif is_lost:
            lost += 1
        else:
            barren += 1
        if barren == MAX_BARREN:
            why = f"{MAX_BARREN} attempts in a row ended before they had made a new call"
        elif lost == MAX_LOST:
            why = (
                f"{MAX_LOST} attempts in a row were lost with the process that ran them, before they had made a new "
                "call: does the program end that process?"
            )
        if why:
            return before.model_copy(update={"ended_ms": now_ms, "exit_code": 1, "why_ended": why})
        attempt = {
            "attempt": before.attempt + 1,
            "secret_digest": digest_of(secret),
            "attempt_ms": now_ms,
            "host": host,
        }
        counted = {
            "calls_before": usage.calls,
            "store_bytes_before": usage.store_bytes,
            "file_bytes_before": usage.file_bytes,
        }
        return before.model_copy(update={**attempt, **counted, "barren": barren, "lost": lost})

    async def end(self, owner: str, request: pb.EndProgramRequest) -> None:
        """Note that a program has ended by itself; `AttemptSupersededError` if another attempt counts."""
        key = ProgramKey(owner, request.program_id)
        for _ in range(_TRIES):
            record, revision = await self.read(key)
            if record is None:
                raise unknown(key)
            if not knows(record, request.secret):
                raise superseded(record, request.attempt)
            if record.ended_ms:
                return
            failed = request.failed
            changes = {
                "ended_ms": self._clock.now_ms(),
                "exit_code": request.exit_code,
                "failed": FailedCall(task=failed.task, number=failed.number, tasks=failed.tasks)
                if failed.task
                else None,
            }
            if await self._written(record.model_copy(update=changes), revision):
                log.info("program_ended", program_id=key.program_id, exit_code=request.exit_code)
                return
        raise StateUnavailableError(f"the end of program {key.program_id} could not be noted: try again")

    async def close(self, key: ProgramKey, job_id: str, why: str) -> bool:
        """End a program that has not ended by itself, while *job_id* goes on with it.

        Return false if it has ended, if it never began, or if another job goes on with it. No call of any attempt has
        an effect from now on.
        """
        for _ in range(_TRIES):
            record, revision = await self.read(key)
            if record is None or record.ended_ms or (record.job_id or record.program_id) != job_id:
                return False
            changes = {"ended_ms": self._clock.now_ms(), "exit_code": 1, "why_ended": why}
            if await self._written(record.model_copy(update=changes), revision):
                log.info("program_closed", program_id=key.program_id, why=why)
                return True
        raise StateUnavailableError(f"program {key.program_id} could not be ended: try again")

    async def _written(self, record: ProgramRecord, revision: int) -> bool:
        """Write a record that was read at *revision*; return false if it has changed since.

        With the end of a mended program that has written nothing, the program is put back to what it was before.
        """
        ops: list[Op] = [Put(*record.key.place, record.encoded())]
        expected = {record.key.place: revision}
        if record.mending is not None and record.has_failed and await self._backend.get(*record.written_mark) is None:
            restored, more = await self.restore(record)
            ops = [
                Put(*record.key.place, record.put_back().encoded()),
                DeleteRange(Keyspace.ProgramCalls, f"{record.calls_path}/"),
                DeleteRange(Keyspace.ProgramCalls, f"{record.marks_path}/"),
                *restored,
            ]
            expected |= {record.written_mark: ABSENT, **more}
        return isinstance(await commit_settled(self._backend, ops, expected), Committed)

    def reopened(
        self, record: ProgramRecord, job_id: str, says: str, mended: tuple[str, Mending] | None = None
    ) -> ProgramRecord:
        """Return the record of a program that has ended as the job *job_id* goes on with it; *says*: for people.

        *mended*: the digest of the mended program that does so, and what the program is now.
        """
        changes = {
            "job_id": job_id,
            "ended_ms": 0,
            "exit_code": 0,
            "why_ended": "",
            "failed": None,
            "secret_digest": "",  # no attempt counts before the next one begins
            "barren": -1,  # what came before is no attempt of this job
            "lost": 0,
            "retried": (
                *record.retried,
                RetriedFrom(attempt=record.attempt, call=record.failed, is_other=mended is not None),
            ),
            "retry_says": says,
        }
        if mended is not None:
            digest, mending = mended
            text = record.texts + 1
            changes |= {"text": text, "texts": text, "digest": digest, "mending": mending}
        return record.model_copy(update=changes)

    async def folder(self, key: ProgramKey) -> str:
        """Return the name of the folder of a program's files; empty if it never began."""
        record, _ = await self.read(key)
        return "" if record is None else record.folder

    async def info(self, key: ProgramKey) -> pb.ProgramInfo:
        """Return how a program stands; `NotFoundError` if it never began."""
        record, _ = await self.read(key)
        if record is None:
            raise unknown(key)
        return pb.ProgramInfo(
            program_id=record.program_id,
            attempt=record.attempt,
            ended=bool(record.ended_ms),
            exit_code=record.exit_code,
            why_ended=record.why_ended,
            began_ms=record.began_ms,
            attempt_ms=record.attempt_ms,
            ended_ms=record.ended_ms,
            calls=(await self.usages.count(key.path)).calls - (record.mending.earlier if record.mending else 0),
            job_id=record.job_id,
            retries=len(record.retried),
            retried=record.retry_says,
            matching=await self.is_matching(record),
        )

    async def read(self, key: ProgramKey) -> tuple[ProgramRecord | None, int]:
        """Return the record of a program, None if it never began, and its revision."""
        found = await self._backend.get(*key.place)
        if found is None:
            return None, ABSENT
        return ProgramRecord.decoded(found.value, f"Programs/{found.key}"), found.mod_revision

    # ---------------------------------------------------------------- age

    async def sweep(self) -> KnownPrograms:
        """Forget programs that are past their retention, and others that have ended while all have too much."""
        kept = await self._swept()
        await self.usages.count_all(list(kept))
        kept = await self._with_room(kept)
        going_on = {path for path, (record, _) in kept.items() if record is None or not record.ended_ms}
        resting = {path for path, (record, _) in kept.items() if record is not None and record.may_go_on} - going_on
        records = [record for record, _ in kept.values()]
        folders = {record.folder for record in records if record is not None}
        return KnownPrograms(going_on, resting, folders if None not in records else None)

    @property
    def lack_room(self) -> bool:
        """Return whether all programs together have too much in the store."""
        return self.usages.excess_bytes > 0

    async def make_room(self) -> None:
        """Forget programs that have ended, the oldest end first, while all together have too much in the store."""
        if self.lack_room:
            await self._with_room(await self._swept())

    async def _swept(self) -> "_Records":
        """Forget programs that are past their retention; return the records of the others, and their revisions."""
        kept: _Records = {}
        now_ms = self._clock.now_ms()
        async for page in each_page(self._backend.scan, Keyspace.Programs, limit=_PAGE):
            for item in page:
                try:
                    record = ProgramRecord.decoded(item.value, f"Programs/{item.key}")
                except OnagerError as error:
                    log.warning("program_unreadable", key=item.key, error=str(error))
                    kept[item.key] = None, item.mod_revision
                    continue
                is_over = record.ended_ms and now_ms - record.ended_ms > self._retention_ms
                if not (is_over and await self._forget(item.key, record, item.mod_revision)):
                    kept[item.key] = record, item.mod_revision
        return kept

    async def _with_room(self, kept: "_Records") -> "_Records":
        ended = [
            (record.ended_ms, path) for path, (record, _) in kept.items() if record is not None and record.ended_ms
        ]
        for _, path in sorted(ended):
            if not self.lack_room:
                break
            record, revision = kept[path]
            if record is not None and await self._forget(path, record, revision):
                log.info("program_removed_for_room", program=path)
                del kept[path]
        return kept

    async def _forget(self, path: str, record: ProgramRecord, revision: int) -> bool:
        """Remove what is known of a program that has ended; return whether that is done."""
        try:
            await self.files.remove(record.folder)
        except OnagerError as error:
            log.warning("program_not_removed", program=path, error=str(error))
            return False
        ops: list[Op] = [Delete(Keyspace.Programs, path), DeleteRange(Keyspace.ProgramCalls, f"{path}/")]
        await self._backend.put_txn(ops, expect={(Keyspace.Programs, path): revision})
        self.usages.forget(path)
        return True


_Records = dict[str, tuple[ProgramRecord | None, int]]
"""By the paths of programs: the record, None if it cannot be read, and its revision."""


def _check_same(before: ProgramRecord, request: pb.BeginProgramRequest) -> None:
    """Raise `InvalidRequestError` for another program, or other arguments, under the id of one that was begun."""
    if request.digest != before.digest:
        what = "with another content of its file"
    elif request.arguments != before.arguments:
        what = f"with the arguments {before.arguments}, and these are {request.arguments}"
    else:
        return
    raise InvalidRequestError(
        f"program {before.program_id} was begun {what}: what was recorded would not fit. Give another id"
    )


async def _is_not(_: ProgramRecord) -> bool:
    return False


async def _nothing_more(_: ProgramRecord) -> Extra:
    return NOTHING_MORE


def begun(record: ProgramRecord, calls: int) -> pb.BeginProgramResponse:
    """Return the answer to who begins an attempt; *calls*: the records of calls that there are."""
    if record.mending is not None:
        calls = max(record.mending.calls, calls - record.mending.earlier)
    return pb.BeginProgramResponse(
        attempt=record.attempt,
        seed=record.seed,
        calls=calls,
        ended=bool(record.ended_ms),
        exit_code=record.exit_code,
        why_ended=record.why_ended,
        retries=len(record.retried),
    )
