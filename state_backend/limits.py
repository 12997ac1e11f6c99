"""The limits of a request: etcd's, enforced for every adapter, and the ways to stay below them.

Source: etcd 3.4 and later, ``--max-txn-ops`` (128) and ``--max-request-bytes`` (1.5 MiB), at their defaults.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from onager.errors import InvalidRequestError, LimitExceededError
from onager.state_backend.model import Delete, DeleteRange, Keyspace, Move, Op, Put, SingleOp

MAX_TXN_OPS: Final = 128
"""Most operations (a move is two), and most conditions (expectations and fences together), of one transaction."""
MAX_REQUEST_BYTES: Final = 1_572_864
"""Most bytes of one request: keys, values and `OP_OVERHEAD_BYTES` for each operation and condition."""
OP_OVERHEAD_BYTES: Final = 128
"""The size assumed for one operation besides its key and value: namespace, keyspace, framing."""
VALUE_CHUNK_BYTES: Final = 512 * 1024
"""The size to split larger values into; two chunks and their bookkeeping fit a request."""

_Expect = Mapping[tuple[Keyspace, str], int]


def op_bytes(op: Op) -> int:
    """Return what *op* counts towards `MAX_REQUEST_BYTES`."""
    if isinstance(op, Put):
        return OP_OVERHEAD_BYTES + _size(op.key) + len(op.value)
    if isinstance(op, Delete):
        return OP_OVERHEAD_BYTES + _size(op.key)
    if isinstance(op, Move):
        return 2 * (OP_OVERHEAD_BYTES + _size(op.key)) + len(op.value)
    return OP_OVERHEAD_BYTES + 2 * _size(op.prefix)


def request_bytes(ops: Iterable[Op], expect: _Expect) -> int:
    """Return what a transaction counts towards `MAX_REQUEST_BYTES`.

    A condition counts twice: it is compared and, if it does not hold, read.
    """
    return sum(map(op_bytes, ops)) + 2 * sum(OP_OVERHEAD_BYTES + _size(key) for _, key in expect)


def check_txn(ops: Collection[SingleOp], expect: _Expect) -> None:
    """Raise `LimitExceededError` or `InvalidRequestError` when a transaction breaks the contract."""
    if len(ops) > MAX_TXN_OPS:
        raise LimitExceededError(
            f"a transaction of {len(ops)} operations is more than the limit of {MAX_TXN_OPS}: "
            "split it (split_ops), or guard the parts with an expectation on a head record"
        )
    if len(expect) > MAX_TXN_OPS:
        raise LimitExceededError(f"a transaction with {len(expect)} conditions is over the limit of {MAX_TXN_OPS}")
    for _, key in expect:
        check_key(key)
    _check_ops(ops)
    if (size := request_bytes(ops, expect)) > MAX_REQUEST_BYTES:
        raise LimitExceededError(
            f"a request of {size:,} bytes is more than the limit of {MAX_REQUEST_BYTES:,}: "
            "split the transaction (split_ops) or the value (split_value)"
        )


def check_key(key: str) -> None:
    """Raise `InvalidRequestError` unless *key* is not empty and can be written as UTF-8."""
    if not key:
        raise InvalidRequestError("a key must not be empty")
    _check_text(key)


def check_prefix(prefix: str) -> None:
    """Raise `InvalidRequestError` unless *prefix* is empty or ends with ``/``."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(
            f"prefix {prefix!r} must be empty or end with '/': without it, job1 would mean job10 too"
        )
    _check_text(prefix)


def split_ops(ops: Iterable[Op], max_bytes: int = MAX_REQUEST_BYTES) -> Iterator[tuple[Op, ...]]:
    """Yield *ops* in order, in batches of at most *max_bytes* that each fit a transaction without conditions.

    Each batch is atomic, their sequence is not.
    """
    batch: list[Op] = []
    size = 0
    for op in ops:
        if batch and (len(batch) == MAX_TXN_OPS or size + op_bytes(op) > max_bytes):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(op)
        size += op_bytes(op)
    if batch:
        yield tuple(batch)


def split_value(value: bytes, chunk_bytes: int = VALUE_CHUNK_BYTES) -> tuple[bytes, ...]:
    """Return *value* in chunks of at most *chunk_bytes*, at least one; joined they are *value* again."""
    return tuple(value[start : start + chunk_bytes] for start in range(0, len(value), chunk_bytes)) or (b"",)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"key {text!r} cannot be written as UTF-8: {error.reason}") from error


def _check_ops(ops: Collection[SingleOp]) -> None:
    written: set[tuple[Keyspace, str]] = set()
    cleared: list[DeleteRange] = []
    for op in ops:
        if isinstance(op, DeleteRange):
            check_prefix(op.prefix)
            cleared.append(op)
            continue
        check_key(op.key)
        reference = (op.keyspace, op.key)
        if reference in written:
            raise InvalidRequestError(f"{op.keyspace}/{op.key} is written twice in one transaction")
        written.add(reference)
    for gone in cleared:
        for keyspace, key in written:
            if keyspace == gone.keyspace and key.startswith(gone.prefix):
                raise InvalidRequestError(
                    f"{keyspace}/{key} is written and its range {gone.prefix!r} deleted in one transaction; use two"
                )
