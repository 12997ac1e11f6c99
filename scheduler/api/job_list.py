"""The list of jobs: filtered, newest first, in pages that any scheduler continues."""

import asyncio
import heapq
import re
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Final

from onager.errors import InvalidRequestError
from onager.ids import PROGRAM_LABEL, is_job_id, program_of, script_of
from onager.protocol import onager_pb2 as pb
from onager.scheduler import wire
from onager.scheduler.api.progress import progress_of_head
from onager.scheduler.jobs.job_heads import JobHead

_DEFAULT: Final = 100
_PORTION: Final = 5_000
"""Heads that are looked at before other calls get their turn: a few milliseconds."""
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.(.+)")

Position = tuple[int, str]
"""When a job was submitted, and its id: the order of the list, the same at every scheduler."""


async def listed(heads: Sequence[JobHead], request: pb.ListJobsRequest) -> pb.ListJobsResponse:
    """Return a page of the newest of *heads* that *request* asks for; `InvalidRequestError` if it makes no sense.

    A page begins after the position that its cursor names, whatever became of the job there. So jobs that come and go
    between two pages move no others.
    """
    fits = _condition(request, {head.job_id for head in heads if head.is_program})
    limit = request.limit or _DEFAULT
    newest: list[JobHead] = []
    for start in range(0, len(heads), _PORTION):
        some = filter(fits, heads[start : start + _PORTION])
        newest = heapq.nlargest(limit + 1, chain(newest, some), key=_position)
        await asyncio.sleep(0)
    more = len(newest) > limit
    page = newest[:limit]
    return pb.ListJobsResponse(
        jobs=[progress_of_head(head) for head in page], next=_cursor(_position(page[-1])) if more else ""
    )


def _condition(request: pb.ListJobsRequest, programs: Collection[str]) -> Callable[[JobHead], bool]:
    state = request.state.lower()
    if state and state not in {known.value for known in wire.STATE}:
        raise InvalidRequestError(
            f"{request.state!r} is not a job state; use {', '.join(known.value for known in wire.STATE)}"
        )
    if request.until_ms and request.until_ms <= request.since_ms:
        raise InvalidRequestError(
            f"no job can be submitted between {request.since_ms} (since) and {request.until_ms} (until, not included): "
            "give a later end"
        )
    name, since_ms, until_ms = request.name.casefold(), request.since_ms, request.until_ms
    before = _before(request.cursor)
    labels = list(request.labels.items())
    has_steps = request.steps or PROGRAM_LABEL in request.labels

    def fits(head: JobHead) -> bool:
        return (
            (not state or head.state.value == state)
            and head.submitted_ms >= since_ms
            and (not until_ms or head.submitted_ms < until_ms)
            and (not request.session or head.session == request.session)
            and (not request.principal or head.principal == request.principal)
            and (not name or name in head.name.casefold())
            and (has_steps or not _is_step(head, programs))
            and all(head.labels.get(key) == value for key, value in labels)
            and (before is None or _position(head) < before)
        )

    return fits


def _is_step(head: JobHead, programs: Collection[str]) -> bool:
    """Return whether the job is part of another one: a step of a script, or a call of one of *programs*."""
    return script_of(head.job_id) is not None or program_of(head.labels) in programs


def _position(head: JobHead) -> Position:
    return head.submitted_ms, head.job_id


def _cursor(position: Position) -> str:
    return f"{position[0]}.{position[1]}"


def _before(cursor: str) -> Position | None:
    if not cursor:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None or not is_job_id(found[2]):
        raise InvalidRequestError(f"{cursor!r} is no cursor of a list of jobs: give `next` of the page before")
    return int(found[1]), found[2]
