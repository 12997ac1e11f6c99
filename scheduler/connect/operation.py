"""One operation of a session: its names, where its record is, and what is in it."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onager.ids import JobId
from onager.scheduler.connect.failures import too_large
from onager.scheduler.connect.program_calls import ProgramCall
from onager.scheduler.connect.records import OperationRecord, SessionKey
from onager.scheduler.connect.responses import Ids
from onager.scheduler.connect.running import TAG, job_id_of
from onager.scheduler.records import Expected
from onager.state_backend import Keyspace

_TAGS: Final = 32
_TAG_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a session."""

    key: SessionKey
    server_side_session_id: str
    operation_id: str
    call: ProgramCall | None = None
    """The call of a program that it is."""

    @property
    def job_id(self) -> JobId:
        """Return the id of its job."""
        return job_id_of(self.key, self.operation_id)

    @property
    def place(self) -> tuple[Keyspace, str]:
        """Return where its record is."""
        if self.call is not None:
            return self.call.place
        return Keyspace.ConnectOperations, f"{self.key.path}/{self.operation_id}"

    def is_taken(self, digest: str, by: str | None) -> bool:
        """Return whether another plan than that of *digest* has its id, one of the digest *by*.

        The calls of a program are held against what was recorded, and their plans may differ.
        """
        return self.call is None and by != digest

    def recorded(self, *, work: str, **outcome: Any) -> OperationRecord:
        """Return what records it: a command whose job is to do *work*, or which is done."""
        if self.call is None:
            return OperationRecord(work=work, **outcome)
        return self.call.record.model_copy(update={**outcome, "work": work, "is_done": not work})

    async def outcome_of(self, responses: Sequence[bytes]) -> dict[str, Any]:
        """Return the fields of a record with *responses*."""
        if self.call is not None:
            return await self.call.outcome_of(responses)
        return {"responses": tuple(base64.b64encode(response).decode() for response in responses)}

    async def responses(self, record: OperationRecord) -> list[bytes]:
        """Return the responses that its *record* has, or names."""
        if self.call is not None:
            return [response async for response in self.call.responses()]
        return [base64.b64decode(response) for response in record.responses]

    @property
    def fenced(self) -> Expected:
        """Return what its writes expect besides."""
        return {} if self.call is None else self.call.fence.expected

    @property
    def ids(self) -> Ids:
        """Return what is in its responses."""
        return Ids(self.key.session_id, self.server_side_session_id, self.operation_id)


def tags_of(request: Any) -> dict[str, str]:
    """Return the labels of the tags of an operation; `ConnectError` for too many, or one that cannot be a label."""
    found = {f"{TAG}{number}": tag for number, tag in enumerate(dict.fromkeys(request.tags))}
    if len(found) > _TAGS:
        raise too_large("the operation", len(found), _TAGS, "tags")
    for tag in found.values():
        if len(tag) > _TAG_CHARS or not tag.isprintable():
            raise too_large(f"the tag {tag[:40]!r}", len(tag), _TAG_CHARS, "characters, all of them printable")
    return found


def takes_pieces(request: Any) -> bool:
    """Return whether the client of an operation takes large batches in pieces."""
    return any(option.result_chunking_options.allow_arrow_batch_chunking for option in request.request_options)
