"""Mended programs: their calls are matched with what is recorded of the program before (`matching`).

Where the matching of a task has got to follows from the records of its calls, so it survives every process. A call that
stands is recorded under its new name by a record that says where its outcome is. A call that runs, though none before
was like it, leaves a mark for the other tasks; and so does the first write of the mended program, which comes once all
writes that are done were matched.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from onager.errors import BusyError, NotFoundError, StateCorruptError
from onager.ids import BlobDigest
from onager.program_errors import ProgramDiffersError
from onager.scheduler.connect.call_lists import calls_below
from onager.scheduler.connect.matching import Asked, Match, Recorded, Why, match
from onager.scheduler.connect.program_calls import CallRecord, ProgramCall, ProgramStore
from onager.scheduler.connect.program_targets import Effect
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_specs import decode_spec
from onager.scheduler.program_records import Mending, ProgramKey, ProgramRecord, calls_path, unknown
from onager.state_backend import ABSENT, Committed, Keyspace, KeyValue, Put, commit_settled

_AT_HAND: Final = 64
"""Programs of which it is kept at hand how many writes are not matched yet."""
_STUCK_MS: Final = 60_000
"""When no call has come for that long, and none runs, the writes that a new write waits for do not come."""
_LINE_CHARS: Final = 200
_MISSING: Final = "it makes no such call"


class _Before:
    """What is recorded of the program before, as far as it is not matched yet."""

    def __init__(self, now_ms: int) -> None:
        self.moved_ms = now_ms
        """When a task with such writes was last seen to go on."""
        self.last_writes: dict[str, int] = {}
        """By tasks: the number of the last write that is not matched."""
        self.seen: dict[str, str] = {}
        """By tasks: the key of the last call of the mended program that was looked at."""
        self.writes: Counter[Asked] = Counter()
        """All of them."""


@dataclass(frozen=True, slots=True)
class ProgramMatches:
    """Matches the calls of mended programs."""

    store: ProgramStore
    blobs: BlobStore
    _before: OrderedDict[tuple[str, int], _Before] = field(default_factory=OrderedDict)

    async def match(self, call: ProgramCall) -> None:
        """Find what becomes of a call of a mended program of which nothing is recorded.

        What stands is recorded then; the record of a call that is to run will say how far the matching is.
        `ProgramDiffersError` if the program does not fit the writes that are done; `BusyError` for a write that has to
        wait for writes of other tasks.
        """
        mending = _mending(call.program)
        effect, asked = Effect(call.record.effect), _asked(call.record)
        position = await self._position(call)
        is_beside = await self._is_beside(call)
        left = await self._left(call, position, asked, effect)
        found = match([recorded for recorded, _ in left], asked, effect, keeps=mending.keeps, is_beside=is_beside)
        records = {recorded.number: record for recorded, record in left}
        before = None if found.recorded is None else records[found.recorded.number]
        if found.refused is not None:
            assert before is not None
            raise await self._refused(call.program, found.refused, before, call.record)
        changed = {"position": position if found.recorded is None else found.recorded.number}
        call.record = call.record.model_copy(update=changed)
        if before is None:
            await self._begin_new(call, effect, asked, is_behind=not left)
        elif found.stands and (before.is_done or effect is Effect.WRITE):
            await self._let_stand(call, found, before)
        elif effect is Effect.SETTING and before.is_done:
            call.stands = self._standing(call, found, before)
        elif effect is Effect.READ:
            call.marks = (_mark(call),)

    # ---------------------------------------------------------------- where the matching is

    async def _position(self, call: ProgramCall) -> int:
        """Return the number of the last call of the task, as it was before, that was matched by now."""
        if call.name.number == 1:
            return 0
        path = f"{call.program.calls_path}/{call.name.task}/"
        found = await self.store.backend.get(Keyspace.ProgramCalls, f"{path}{call.name.number - 1:06d}")
        if found is not None:
            return _decoded(found).position
        last = 0  # the one before was given up by its client
        async for item in calls_below(self.store.backend, path):
            record = _decoded(item)
            if int(item.key.removeprefix(path)) < call.name.number:
                last = max(last, record.position)
        return last

    async def _is_beside(self, call: ProgramCall) -> bool:
        """Return whether another task has made a call that is not in the record."""
        marks = await self.store.backend.scan_keys(Keyspace.ProgramCalls, f"{call.program.marks_path}/", limit=3)
        own = {_mark(call).key, call.program.written_mark[1]}
        return any(key not in own for key in marks)

    async def _left(
        self, call: ProgramCall, position: int, asked: Asked, effect: Effect
    ) -> list[tuple[Recorded, CallRecord]]:
        """Return the recorded calls of the task that are not matched: of a call that is the next one, only that."""
        path = f"{calls_path(call.program.key, _mending(call.program).text)}/{call.name.task}/"
        found: list[tuple[Recorded, CallRecord]] = []
        page = await self.store.backend.scan(Keyspace.ProgramCalls, path, limit=1, start_after=f"{path}{position:06d}")
        for item in page:
            found.append(_recorded(item))
            if effect is not Effect.WRITE or found[0][0].asked == asked:
                return found
        if found:
            after = f"{path}{found[0][0].number:06d}"
            found += [_recorded(item) async for item in calls_below(self.store.backend, path, after)]
        return found

    # ---------------------------------------------------------------- what becomes of a call

    def _standing(self, call: ProgramCall, found: Match, before: CallRecord) -> CallRecord:
        """Return the record of a call whose outcome is that of one *before*."""
        assert found.recorded is not None
        path = (
            f"{calls_path(call.program.key, _mending(call.program).text)}/{call.name.task}/{found.recorded.number:06d}"
        )
        own = {name: getattr(call.record, name) for name in ("line", "attempt", "plan", "statement", "position")}
        return before.model_copy(update={**own, "responses": (), "of": before.of or path})

    async def _let_stand(self, call: ProgramCall, found: Match, before: CallRecord) -> None:
        own = call.record
        call.record = self._standing(call, found, before)
        extra = call.extra()
        written = await commit_settled(self.store.backend, *extra)
        if isinstance(written, Committed):
            call.took(extra, written.revision)
            return
        call.record = own
        await call.look()  # who was first has decided the same, unless this attempt does not count any more
        if call.revision == ABSENT:
            raise BusyError(f"{call.name} changes too often: try again")

    async def _begin_new(self, call: ProgramCall, effect: Effect, asked: Asked, *, is_behind: bool) -> None:
        """Take in that a call is to run that is not in the record; *is_behind*: all there of its task is matched."""
        if effect is not Effect.WRITE:
            call.marks = () if is_behind else (_mark(call),)
            return
        program = call.program
        missing = await self._unmatched_write(program)
        keeps = _mending(program).keeps
        if missing is not None:
            before, is_stuck = missing
            if not is_stuck:
                raise BusyError(
                    f"{call.name.shown} waits until other tasks have made their writes again: {_shown(before)}"
                )
            if not keeps:
                raise await self._refused(program, Why.DIFFERS, before, None)
        if keeps and await self._is_done_elsewhere(program, asked):
            raise await self._refused(program, Why.ELSEWHERE, call.record, call.record)
        call.marks = (Put(*program.written_mark, b"{}"),)

    # ---------------------------------------------------------------- all tasks

    async def check_end(self, key: ProgramKey) -> None:
        """Raise `ProgramDiffersError` if a program that ends with exit code 0 lacks a write that is done."""
        found = await self.store.backend.get(*key.place)
        if found is None:
            raise unknown(key)
        program = ProgramRecord.decoded(found.value, f"Programs/{found.key}")
        if program.mending is None or program.ended_ms or program.mending.keeps:
            return
        if (missing := await self._unmatched_write(program)) is not None:
            raise await self._refused(program, Why.DIFFERS, missing[0], None)

    async def is_matching(self, program: ProgramRecord) -> bool:
        """Return whether a mended program has not made all writes again that are done."""
        if program.mending is None or program.ended_ms:
            return False
        return bool((await self._unmatched(program)).last_writes)

    async def _unmatched_write(self, program: ProgramRecord) -> tuple[CallRecord, bool] | None:
        """Return a write that is done, and that no task has come to again, if there is one; and whether none will."""
        before = await self._unmatched(program)
        while before.last_writes:
            task, number = next(iter(before.last_writes.items()))
            record = await self._next_write(program, task, number)
            if record is not None:
                return record, await self._is_stuck(program, before.moved_ms)
            before.last_writes.pop(task, None)  # it was matched just now
        return None

    async def _unmatched(self, program: ProgramRecord) -> _Before:
        """Return what is not matched, by the calls that have come since it was asked for last."""
        before = await self._read(program)
        for task, number in list(before.last_writes.items()):
            path = f"{program.calls_path}/{task}/"
            async for item in calls_below(self.store.backend, path, before.seen.get(task)):
                before.seen[task], before.moved_ms = item.key, self.store.clock.now_ms()
                if _decoded(item).position >= number:
                    before.last_writes.pop(task, None)
                    break
        return before

    async def _next_write(self, program: ProgramRecord, task: str, last: int) -> CallRecord | None:
        """Return the next write of a task that is not matched; *last*: the number of its last one."""
        position = 0
        async for item in calls_below(self.store.backend, f"{program.calls_path}/{task}/"):
            position = _decoded(item).position
        path = f"{calls_path(program.key, _mending(program).text)}/{task}/"
        async for item in calls_below(self.store.backend, path, f"{path}{position:06d}"):
            recorded, record = _recorded(item)
            if recorded.effect is Effect.WRITE and recorded.number <= last:
                return record
        return None

    async def _is_stuck(self, program: ProgramRecord, moved_ms: int) -> bool:
        """Return whether no call has come for long, and none runs."""
        newest_ms = max(program.attempt_ms, moved_ms)
        async for item in calls_below(self.store.backend, f"{program.calls_path}/"):
            record = _decoded(item)
            if not (record.is_done or record.of):
                return False
            newest_ms = max(newest_ms, record.at_ms)
        return self.store.clock.now_ms() - newest_ms > _STUCK_MS

    async def _is_done_elsewhere(self, program: ProgramRecord, asked: Asked) -> bool:
        """Return whether a write like this is done, and stands for another one, or for none."""
        before = await self._read(program)
        if not (count := before.writes[asked]):
            return False
        async for item in calls_below(self.store.backend, f"{program.calls_path}/"):
            record = _decoded(item)
            count -= bool(record.of) and _asked(record) == asked
        return count > 0

    async def _read(self, program: ProgramRecord) -> _Before:
        """Read which writes are recorded, once."""
        key = program.key.path, program.text
        before = self._before.get(key)
        if before is None:
            before = _Before(self.store.clock.now_ms())
            prefix = f"{calls_path(program.key, _mending(program).text)}/"
            async for item in calls_below(self.store.backend, prefix):
                recorded, _ = _recorded(item)
                if recorded.effect is Effect.WRITE:
                    before.last_writes[item.key.removeprefix(prefix).partition("/")[0]] = recorded.number
                    before.writes[recorded.asked] += 1
            self._before[key] = before
            if len(self._before) > _AT_HAND:
                self._before.popitem(last=False)
        return before

    # ---------------------------------------------------------------- refusals

    async def _refused(
        self, program: ProgramRecord, why: Why, before: CallRecord, now: CallRecord | None
    ) -> ProgramDiffersError:
        """Return the error with both writes, and the lines of the programs that make them."""
        recorded = f"{_shown(before)}{await self._source(_mending(program).digest, before.line)}"
        mended = _MISSING if now is None else f"{_shown(now)}{await self._source(program.digest, now.line)}"
        return ProgramDiffersError(why, recorded, mended, is_kept=_mending(program).keeps)

    async def _source(self, digest: str, line: str) -> str:
        """Return a line of a program's file, as it is shown; empty if it is not known."""
        name, _, number = line.rpartition(":")
        try:
            spec = decode_spec(await self.blobs.get(BlobDigest(digest)))
        except (NotFoundError, StateCorruptError):
            return ""
        files = {file.name: file.content for file in spec.program.files}
        content = {**files, spec.program.file_name: spec.program.source}.get(name, b"")
        lines = content.decode(errors="replace").splitlines()
        at = int(number) if number.isdecimal() else 0
        return f": {lines[at - 1].strip()[:_LINE_CHARS]}" if 0 < at <= len(lines) else ""


def _mending(program: ProgramRecord) -> Mending:
    assert program.mending is not None
    return program.mending


def _mark(call: ProgramCall) -> Put:
    return Put(Keyspace.ProgramCalls, f"{call.program.marks_path}/{call.name.task}", b"{}")


def _decoded(item: KeyValue) -> CallRecord:
    return CallRecord.decoded(item.value, f"ProgramCalls/{item.key}")


def _asked(record: CallRecord) -> Asked:
    return Asked(record.kind, record.target, record.session_id, record.plan)


def _recorded(item: KeyValue) -> tuple[Recorded, CallRecord]:
    record = _decoded(item)
    return Recorded(int(item.key.rpartition("/")[2]), _asked(record), Effect(record.effect)), record


def _shown(record: CallRecord) -> str:
    what = record.statement or f"{record.kind}{f' to {record.target}' if record.target else ''}"
    return f"{record.line}  {what}" if record.line else what
