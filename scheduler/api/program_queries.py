"""What clients see of programs: how they stand, their calls, and what they printed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onager.errors import JobNotFoundError, NotFoundError
from onager.exchange_layout import local_path, program_output
from onager.ids import JobId
from onager.program_output import Segment, frames_of, segments
from onager.programs.tasks import RESULT
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_CALLS_A_PAGE
from onager.protocol.security import principal
from onager.scheduler.api.job_queries import asked_job_id
from onager.scheduler.disk import EXCHANGE
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.program_records import ProgramKey
from onager.scheduler.programs import Programs

_LOOK_S: Final = 0.2
"""How often somebody who follows the output looks for more."""
_READ_BYTES: Final = 256 * 1024
_CALLS_OF_RESULT: Final = 10
"""PySpark asks for settings, too, before it sends rows."""

ListCalls = Callable[[ProgramKey, pb.ListProgramCallsRequest], Awaitable[pb.ListProgramCallsResponse]]


@dataclass(eq=False, repr=False)
class ProgramQueries:
    """Answers questions about programs."""

    programs: Programs
    heads: JobHeads
    exchange_dir: str
    list_calls: ListCalls

    async def _key(self, program_id: str) -> ProgramKey:
        """Return the key of a program: that of a job, or its retry, whoever submitted it, or the caller's own."""
        head = await self.heads.known(asked_job_id(program_id))
        if head is None:
            return ProgramKey(principal(), program_id)
        return ProgramKey(head.principal, head.program_id or program_id)

    async def get(self, request: pb.GetProgramRequest) -> pb.ProgramInfo:
        """Return how a program stands: without an attempt if it has not begun; `NotFoundError` if there is none."""
        try:
            return await self.programs.info(await self._key(request.program_id))
        except NotFoundError:
            await self.check(request.program_id)
            return pb.ProgramInfo(program_id=request.program_id)

    async def check(self, program_id: str) -> None:
        """Raise `NotFoundError` unless a job is the program of that id."""
        head = await self.heads.known(asked_job_id(program_id))
        if head is None:
            raise JobNotFoundError(program_id)
        if not head.is_program:
            raise NotFoundError(f"job {program_id} is no program")

    async def calls(self, request: pb.ListProgramCallsRequest) -> pb.ListProgramCallsResponse:
        """Return a page of the calls of a program, by task and number; errors as in `get`."""
        page = pb.ListProgramCallsRequest(program_id=request.program_id, after=request.after)
        page.limit = min(request.limit or MAX_CALLS_A_PAGE, MAX_CALLS_A_PAGE)
        try:
            return await self.list_calls(await self._key(request.program_id), page)
        except NotFoundError:
            await self.check(request.program_id)
            return pb.ListProgramCallsResponse()

    async def result_job(self, job_id: JobId) -> JobId:
        """Return the job whose rows are the result of a script of SQL; `NotFoundError` if it has none."""
        page = pb.ListProgramCallsRequest(program_id=job_id, after=f"{RESULT}/", limit=_CALLS_OF_RESULT)
        found = await self.list_calls(await self._key(job_id), page)
        made_by = next((call.job_id for call in found.calls if call.task == RESULT and call.job_id), "")
        if not made_by:
            raise NotFoundError(
                f"program {job_id} has no rows as its result: onager logs {job_id} shows what it printed"
            )
        return JobId(made_by)

    async def output(self, request: pb.WatchOutputRequest) -> AsyncIterator[pb.ProgramOutput]:
        """Yield what a program printed after a position, and with *follow* what it prints until its job ends.

        `NotFoundError` if a job of that id is no program, or there is none.
        """
        await self.check(request.program_id)
        attempt, position, folder = request.attempt, request.position, ""
        while True:
            head = self.heads.get(JobId(request.program_id))
            is_over = head is None or not head.is_active
            folder = folder or await self.programs.folder(await self._key(request.program_id))
            found: list[pb.ProgramOutput] = []
            if folder:
                where = Path(local_path(self.exchange_dir)) / program_output(folder)
                found, attempt, position = await EXCHANGE.call(_more, where, attempt, position)
            for each in found:
                yield each
            if found:
                continue
            if is_over or not request.follow:
                return
            await asyncio.sleep(_LOOK_S)


def _more(folder: Path, attempt: int, position: int) -> tuple[list[pb.ProgramOutput], int, int]:
    """Return some of what was printed after a position of an attempt, and the position after it."""
    known = [s for s in segments(folder) if s >= _segment_at(folder, attempt, position)]
    for segment in known:
        start = max(position, segment.start) if segment.attempt == attempt else segment.start
        left_out = start - position if segment.attempt == attempt else start
        with (folder / segment.name).open("rb") as file:
            file.seek(start - segment.start)
            try:
                frames, taken = frames_of(file.read(_READ_BYTES))
            except ValueError:
                continue  # it is damaged
        if not frames:
            continue
        answers = [
            pb.ProgramOutput(stream=frame.stream, content=frame.text, attempt=segment.attempt) for frame in frames
        ]
        answers[0].left_out = left_out if start else 0
        answers[-1].position = start + taken
        return answers, segment.attempt, start + taken
    return [], attempt, position


def _segment_at(folder: Path, attempt: int, position: int) -> Segment:
    """Return the segment in which a position is, or the position as one if it is in none."""
    before = [s for s in segments(folder) if s.attempt == attempt and s.start <= position]
    return before[-1] if before else Segment(attempt, position)
