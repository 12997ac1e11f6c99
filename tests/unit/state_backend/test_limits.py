import itertools

import pytest

from onager.errors import LimitExceededError
from onager.state_backend import MAX_REQUEST_BYTES, MAX_TXN_OPS, DeleteRange, Keyspace, Put, op_bytes, split_value
from onager.state_backend.limits import check_txn, request_bytes, split_ops

LOG = Keyspace.JobLog


def test_every_batch_of_split_ops_fits_a_transaction_and_nothing_is_lost():
    ops = [Put(LOG, f"job/{n}", bytes(n * 701 % 900_000)) for n in range(500)]
    batches = list(split_ops(ops))
    assert [op for batch in batches for op in batch] == ops
    for batch in batches:
        check_txn(batch, {})
    for one, following in itertools.pairwise(batches):
        is_full = len(one) == MAX_TXN_OPS or sum(map(op_bytes, one)) + op_bytes(following[0]) > MAX_REQUEST_BYTES
        assert is_full


def test_split_ops_of_nothing_is_nothing():
    assert list(split_ops([])) == []


def test_an_operation_too_large_by_itself_stays_whole_and_is_refused():
    (batch,) = split_ops([Put(LOG, "a", bytes(2_000_000))])
    with pytest.raises(LimitExceededError):
        check_txn(batch, {})


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 25])
def test_split_value_gives_the_value_back(size):
    value = bytes(range(size))
    pieces = split_value(value, 10)
    assert b"".join(pieces) == value
    assert len(pieces) == max(1, -(-size // 10))
    assert all(len(piece) <= 10 for piece in pieces)


def test_keys_count_in_bytes_not_characters():
    assert op_bytes(Put(LOG, "日", b"")) - op_bytes(Put(LOG, "a", b"")) == 2
    assert op_bytes(DeleteRange(LOG, "日/")) - op_bytes(DeleteRange(LOG, "a/")) == 4


def test_the_last_byte_that_fits():
    op = Put(LOG, "a", b"")
    most = MAX_REQUEST_BYTES - request_bytes([op], {(LOG, "a"): 0})
    check_txn([Put(LOG, "a", bytes(most))], {(LOG, "a"): 0})
    with pytest.raises(LimitExceededError):
        check_txn([Put(LOG, "a", bytes(most + 1))], {(LOG, "a"): 0})
