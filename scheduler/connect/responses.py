"""What an operation answers: responses whose ids are positions in the result, so that any scheduler numbers alike.

A response's id says where to go on after it: ``start`` at the first one, ``schema`` at the rows, ``P.B.R`` after batch
B of partition P, with which R rows have come, ``P.B.R.C`` after piece C of that batch, ``end`` after all. Of a command
it is ``+N``, N responses having come; ``+N!`` where only the end is left, of commands that are not recorded.
"""

import asyncio
import re
import struct
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.protocol.spark_connect import ExecutePlanResponse
from onager.scheduler.connect.failures import ConnectError, failed
from onager.scheduler.connect.schemas import schema_message
from onager.scheduler.jobs.results import ResultBatch

START: Final = "start"
END: Final = "end"
_CURSOR: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,18})(?:\.(\d{1,9}))?")
_PIECE_BYTES: Final = 4 * MIB
"""The size of pieces, where the client takes them; other clients get batches as they are."""
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What ends an Arrow stream. Source: Arrow's IPC format."""
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")
_U16: Final = struct.Struct("<H")
_I64: Final = struct.Struct("<q")
_ARROW_BATCH: Final = 2
_DATA: Final = 2


class Ids(NamedTuple):
    """What is in every response of an operation."""

    session_id: str
    server_side_session_id: str
    operation_id: str

    def response(self, response_id: str, **fields: Any) -> Any:
        """Return a response."""
        return ExecutePlanResponse(
            session_id=self.session_id,
            server_side_session_id=self.server_side_session_id,
            operation_id=self.operation_id,
            response_id=response_id,
            **fields,
        )

    def complete(self) -> bytes:
        """Return the last response."""
        response = self.response(END)
        response.result_complete.SetInParent()
        return bytes(response.SerializeToString())


async def after(responses: AsyncGenerator[bytes, None], response_id: str) -> AsyncGenerator[bytes, None]:
    """Yield those of *responses* that come after *response_id*; `ConnectError` for an id that is none of theirs."""
    is_after = response_id in ("", START)
    async with aclosing(responses):
        async for response in responses:
            if is_after:
                yield response
            else:
                is_after = id_of(response) == response_id
    if not is_after:
        raise _no_cursor(response_id)


def id_of(response: bytes) -> str:
    """Return the id of a response."""
    return str(ExecutePlanResponse.FromString(response).response_id)


class Cursor(NamedTuple):
    """Where to go on in the rows of a result."""

    partition: int = 0
    batch: int = 0
    rows: int = 0
    piece: int = 0
    """Of a batch in pieces: how many of them have come."""
    has_schema: bool = False
    is_done: bool = False


def cursor_after(response_id: str) -> Cursor:
    """Return where to go on after the response *response_id*; `ConnectError` for an id that is none of ours."""
    if response_id in ("", START):
        return Cursor()
    if response_id == END:
        return Cursor(is_done=True)
    if response_id == "schema":
        return Cursor(has_schema=True)
    found = _CURSOR.fullmatch(response_id)
    if found is None:
        raise _no_cursor(response_id)
    partition, batch, rows = (int(found[at]) for at in (1, 2, 3))
    if found[4]:
        return Cursor(partition, batch, rows, int(found[4]), has_schema=True)
    return Cursor(partition, batch + 1, rows, has_schema=True)


def _no_cursor(response_id: str) -> ConnectError:
    why = f"The cursor is invalid. {response_id[:80]!r} is no response of the operation."
    return failed("INVALID_CURSOR.POSITION_NOT_FOUND", "HY109", why)


def progress(ids: Ids, job: pb.JobProgress) -> bytes:
    """Return how far a job is; it is before the first response."""
    response = ids.response(START)
    stages = response.execution_progress.stages
    for stage in job.stages:
        stages.add(
            stage_id=stage.stage_id,
            num_tasks=stage.partitions,
            num_completed_tasks=stage.successful,
            input_bytes_read=stage.bytes_read,
            done=stage.state in ("successful", "fused"),
        )
    response.execution_progress.num_inflight_tasks = sum(stage.running for stage in job.stages)
    return bytes(response.SerializeToString())


async def rows(
    ids: Ids,
    cursor: Cursor,
    schema_json: str,
    arrow_schema: bytes,
    batches: AsyncGenerator[ResultBatch, None],
    *,
    in_pieces: bool,
    observed: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    """Yield the responses with a result's rows, from *cursor* on, and the last one, which tells what was *observed*."""
    if not cursor.has_schema and (schema := schema_message(schema_json)) is not None:
        yield bytes(ids.response("schema", schema=schema).SerializeToString())
    come, first_piece = cursor.rows, cursor.piece
    async with aclosing(batches):
        async for found in batches:
            rows_of_it = row_count(found.message)
            if rows_of_it:
                content = (arrow_schema, found.message, _END_OF_STREAM)
                after = f"{found.partition}.{found.batch}"
                if in_pieces and sum(map(len, content)) > _PIECE_BYTES:
                    for piece in _pieces(ids, content, after, come, rows_of_it, first_piece):
                        yield piece
                else:
                    yield _batch(ids, f"{after}.{come + rows_of_it}", content, rows_of_it, come)
            come, first_piece = come + rows_of_it, 0
    if not come:
        yield _batch(ids, "0.0.0", (await asyncio.to_thread(_without_rows, arrow_schema),), 0, 0)
    yield ids.complete() + observed


def _without_rows(arrow_schema: bytes) -> bytes:
    """Return an Arrow stream of one batch without rows, which clients of Spark wait for."""
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(arrow_schema))
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        return bytes(sink.getvalue())


def _pieces(ids: Ids, content: Sequence[bytes], after: str, come: int, rows_of_it: int, first: int) -> Iterator[bytes]:
    whole = memoryview(b"".join(content))
    count = -(-len(whole) // _PIECE_BYTES)
    for piece in range(first, count):
        is_last = piece == count - 1
        response_id = f"{after}.{come + rows_of_it}" if is_last else f"{after}.{come}.{piece + 1}"
        part = whole[piece * _PIECE_BYTES : (piece + 1) * _PIECE_BYTES]
        yield _batch(ids, response_id, (part,), rows_of_it, come, chunk_index=piece, num_chunks_in_batch=count)


def _batch(
    ids: Ids, response_id: str, content: Sequence[bytes | memoryview], rows_of_it: int, come: int, **chunk: int
) -> bytes:
    """Return a response with a batch, encoded by hand around *content*, which is copied once."""
    batch = ExecutePlanResponse.ArrowBatch(row_count=rows_of_it, start_offset=come, **chunk).SerializeToString()
    size = sum(map(len, content))
    data = _tag(_DATA) + _varint(size)
    head = ids.response(response_id).SerializeToString()
    return b"".join((head, _tag(_ARROW_BATCH), _varint(len(batch) + len(data) + size), batch, data, *content))


def _tag(number: int) -> bytes:
    return bytes([number << 3 | 2])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - the continuation bit
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def row_count(message: bytes) -> int:
    """Return the rows of an encapsulated record batch message. Source: Arrow's Message.fbs, FlatBuffers' layout."""
    at = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
    table = at + _U32.unpack_from(message, at)[0]
    header = _field(message, table, 2)
    batch = header + _U32.unpack_from(message, header)[0]
    length = _field(message, batch, 0)
    return int(_I64.unpack_from(message, length)[0]) if length else 0


def _field(message: bytes, table: int, number: int) -> int:
    """Return where a field of a table lies, 0 where it has its default."""
    vtable = table - _I32.unpack_from(message, table)[0]
    if 4 + 2 * number >= _U16.unpack_from(message, vtable)[0]:
        return 0
    offset = _U16.unpack_from(message, vtable + 4 + 2 * number)[0]
    return table + int(offset) if offset else 0


def numbered(ids: Ids, responses: Iterable[bytes], mark: str) -> Iterator[bytes]:
    """Yield the responses of a command with their ids, which end with *mark*."""
    for number, content in enumerate(responses, 1):
        # Two encoded messages in a row are one.
        yield content + ids.response(f"+{number}{mark}").SerializeToString()


def count_of(response_id: str) -> int:
    """Return how many responses of a command have come with the one of that id."""
    number = response_id.removeprefix("+")
    return int(number) if number.isdecimal() else 0
