"""The calls that are recorded of a program, in order, and as clients see them."""

import base64
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import takewhile
from typing import Final

from onager.protocol import onager_pb2 as pb
from onager.scheduler.connect.failures import decoded
from onager.scheduler.connect.program_calls import CallRecord
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import job_id_of
from onager.scheduler.program_records import ProgramKey, ProgramRecord, unknown
from onager.state_backend import Keyspace, KeyValue, StateBackendClient, each_page

_ERROR_CHARS: Final = 1000
_PAGE: Final = 500


async def list_calls(
    backend: StateBackendClient, key: ProgramKey, request: pb.ListProgramCallsRequest
) -> pb.ListProgramCallsResponse:
    """Return up to *limit* calls of a program, those after the one that the last page named."""
    stored = await backend.get(*key.place)
    if stored is None:
        raise unknown(key)
    program = ProgramRecord.decoded(stored.value, f"Programs/{stored.key}")
    prefix, user = f"{program.calls_path}/", program.user
    after = f"{prefix}{request.after}" if request.after else None
    page = await backend.scan(Keyspace.ProgramCalls, prefix, limit=request.limit, start_after=after)
    items = list(calls_in(prefix, page.items))
    answer = pb.ListProgramCallsResponse()
    for item in items:
        record = CallRecord.decoded(item.value, f"ProgramCalls/{item.key}")
        task, _, number = item.key.removeprefix(prefix).partition("/")
        error = None if not record.error else decoded(base64.b64decode(record.error))
        answer.calls.add(
            task=task,
            number=int(number),
            kind=record.kind,
            target=record.target,
            line=record.line,
            at_ms=record.at_ms,
            attempt=record.attempt,
            done=record.is_done,
            error="" if error is None else f"{error.error_class}: {error}"[:_ERROR_CHARS],
            job_id=job_id_of(SessionKey(user, record.session_id), record.operation_id) if record.operation_id else "",
            session_id=record.session_id,
        )
    if len(items) == request.limit:
        answer.next = items[-1].key.removeprefix(prefix)
    return answer


def calls_in(prefix: str, items: Iterable[KeyValue]) -> Iterator[KeyValue]:
    """Return those of *items* below *prefix* that are records of calls of this text: others come behind them."""
    return takewhile(lambda item: item.key[len(prefix)].isdecimal(), items)


async def calls_below(backend: StateBackendClient, prefix: str, after: str | None = None) -> AsyncIterator[KeyValue]:
    """Yield the records of calls below *prefix*, which ends with a slash, in order; those after the key *after*."""
    pages = each_page(backend.scan, Keyspace.ProgramCalls, prefix, limit=_PAGE, start_after=after)
    async for page in pages:
        found = list(calls_in(prefix, page))
        for item in found:
            yield item
        if len(found) < len(page.items):
            return
