"""Results: small ones in the store, larger ones in the exchange, read back in order from any (partition, batch)."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from onager.errors import (
    FetchFailedError,
    InvalidRequestError,
    JobCancelledError,
    JobFailedError,
    ResultExpiredError,
    ResultNotReadyError,
)
from onager.exchange_layout import result_file
from onager.execution_graph import ExecutionGraph, JobState, TaskOutput
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.limits import RESULT_CHUNK_BYTES
from onager.scheduler.disk import EXCHANGE
from onager.scheduler.records import pack_blob, unpack
from onager.state_backend import Keyspace, Op, Put, StateBackendClient

Messages = Generator[bytes, None, None]


class InlineResult(NamedTuple):
    """A partition of a result that came in its report."""

    job_id: JobId
    partition: int
    nonce: str
    content: bytes


class ResultStore:
    """The small results in the state backend, by the nonce of the execution that made them."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend
        self.check_exchange: Callable[[], None] = lambda: None
        """Raises `PlaceNotSeenError` when this scheduler does not see the exchange directory; calls its disk."""

    async def put(self, results: Sequence[InlineResult]) -> None:
        """Store *results*, durable when this returns; repeating is harmless, since each execution has its own nonce."""
        ops = await apart(sum(len(r.content) for r in results), _puts, results)
        await self._backend.put_all(ops)

    async def get(self, job_id: JobId, partition: int, nonce: str) -> bytes:
        """Return the result of an execution; `FetchFailedError` when it is not there."""
        key = _key(job_id, partition, nonce)
        found = await self._backend.get(Keyspace.Results, key)
        if found is None:
            raise FetchFailedError(f"the result of partition {partition} of job {job_id} is missing in the store")
        return unpack(found.value, f"result {key}")


def check_fetchable(graph: ExecutionGraph, *, has_result: bool) -> None:
    """Raise if the job's result cannot be fetched: not ready, failed, cancelled, expired, written elsewhere."""
    match graph.state:
        case JobState.SUCCESSFUL:
            pass
        case JobState.FAILED:
            failure = graph.outcome.failure  # type: ignore[union-attr]
            raise JobFailedError(
                graph.job_id,
                failure.message,
                failure.error_class,
                sql_state=failure.sql_state,
                query_context=failure.query_context,
            )
        case JobState.CANCELLED:
            raise JobCancelledError(graph.job_id, graph.outcome.text)  # type: ignore[union-attr]
        case state:
            raise ResultNotReadyError(graph.job_id, state.value)
    if graph.plan is not None and graph.plan.sink is not None:
        raise InvalidRequestError(
            f"the result of job {graph.job_id} was written to {graph.plan.sink.path}: read it there"
        )
    if not has_result:
        raise ResultExpiredError(graph.job_id)


async def stream_result(
    graph: ExecutionGraph, store: ResultStore, exchange_dir: str, *, partition: int, batch: int
) -> AsyncIterator[pb.ResultChunk]:
    """Yield the result of a successful job from (*partition*, *batch*) on, in chunks below 2 MiB.

    The first chunk carries the schema. One record batch is held at a time. Batches of a partition are numbered from 0.
    """
    yield pb.ResultChunk(schema=result_schema(graph), partition=partition, batch=batch)
    batches = result_batches(graph, store, exchange_dir, partition=partition, batch=batch)
    async with aclosing(batches):
        async for found in batches:
            for piece in _pieces(found.message, found.partition, found.batch):
                yield piece


class ResultBatch(NamedTuple):
    """A batch of a result: one encapsulated Arrow message."""

    partition: int
    batch: int
    """Its number in the partition."""
    message: bytes


def result_schema(graph: ExecutionGraph) -> bytes:
    """Return the schema of a successful job's result, as an encapsulated Arrow message."""
    if graph.plan is None:
        raise ResultNotReadyError(graph.job_id, graph.state.value)
    return base64.b64decode(graph.plan.arrow_schema)


async def result_batches(
    graph: ExecutionGraph, store: ResultStore, exchange_dir: str, *, partition: int, batch: int
) -> AsyncGenerator[ResultBatch, None]:
    """Yield the batches of a successful job's result from (*partition*, *batch*) on; one is held at a time."""
    stage = graph.result_stage
    if stage is None:
        raise ResultNotReadyError(graph.job_id, graph.state.value)
    for number in range(partition, stage.spec.partitions):
        output = stage.ledger.outputs[number]
        position = batch if number == partition else 0
        messages = await _open(graph.job_id, stage.spec.stage_id, number, output, position, store, exchange_dir)
        try:
            while (message := await _next(messages, store, is_inline=output.is_inline)) is not None:
                yield ResultBatch(number, position, message)
                position += 1
        finally:
            if not output.is_inline:
                EXCHANGE.post(messages.close)


async def _next(messages: Messages, store: ResultStore, *, is_inline: bool) -> bytes | None:
    """Return the next message, if there is one."""
    if is_inline:
        return next(messages, None)
    try:
        return await EXCHANGE.call(_next_of, messages, late=lambda _: messages.close())
    except FetchFailedError:
        await EXCHANGE.call(store.check_exchange)  # another scheduler may see the directory where the file is
        raise


def _next_of(messages: Messages) -> bytes | None:
    return next(messages, None)


async def _open(
    job_id: str, stage_id: int, partition: int, output: TaskOutput, first: int, store: ResultStore, exchange_dir: str
) -> Messages:
    from onager import result_files  # imports Arrow

    if output.is_inline:
        content = await store.get(JobId(job_id), partition, output.nonce)
        what = f"the result of partition {partition} of job {job_id}"
        return result_files.read_inline(content, what, output.checksum, first)
    try:
        name = result_file(job_id, stage_id, partition, output.nonce)
    except ValueError as error:
        raise FetchFailedError(f"the result of partition {partition} of job {job_id} has no file: {error}") from error
    return result_files.read_result(exchange_dir, name, output.checksum, first)


def _pieces(message: bytes, partition: int, batch: int) -> Iterator[pb.ResultChunk]:
    for start in range(0, len(message), RESULT_CHUNK_BYTES):
        yield pb.ResultChunk(
            partition=partition,
            batch=batch,
            record_batch=message[start : start + RESULT_CHUNK_BYTES],
            more=start + RESULT_CHUNK_BYTES < len(message),
        )


def _puts(results: Sequence[InlineResult]) -> list[Op]:
    return [Put(Keyspace.Results, _key(r.job_id, r.partition, r.nonce), pack_blob(r.content)) for r in results]


def _key(job_id: JobId, partition: int, nonce: str) -> str:
    return f"{job_id}/{partition:08d}/{nonce}"
