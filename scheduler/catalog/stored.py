"""Reads of many records of the catalog."""

from collections.abc import Sequence

from onager.state_backend import MAX_TXN_OPS, Keyspace, KeyValue, StateBackendClient


async def stored(backend: StateBackendClient, keys: Sequence[str]) -> dict[str, KeyValue]:
    """Return the records of *keys* that exist, in that order; up to `MAX_TXN_OPS` of them at one revision."""
    found: dict[str, KeyValue] = {}
    for start in range(0, len(keys), MAX_TXN_OPS):
        values = (await backend.read_txn([(Keyspace.Catalog, key) for key in keys[start : start + MAX_TXN_OPS]])).values
        found |= {key: item for (_, key), item in values.items() if item is not None}
    return found
