"""The whole store at one revision."""

from collections.abc import Mapping
from dataclasses import dataclass

from onager.state_backend import KeyRange, Keyspace, KeyValue, StateBackendClient


@dataclass(frozen=True, slots=True)
class StoreContents:
    """Every record as of *revision*, by keyspace and key, in the order of the keys' bytes."""

    revision: int
    records: Mapping[Keyspace, Mapping[str, KeyValue]]

    def count(self) -> dict[str, int]:
        """Return the number of records of each keyspace that has any."""
        return {keyspace.value: len(found) for keyspace, found in self.records.items() if found}


async def read_contents(backend: StateBackendClient) -> StoreContents:
    """Read all keyspaces at one revision; it takes about as much memory as the store has on disk."""
    seen = await backend.read_txn(ranges=[KeyRange(keyspace) for keyspace in Keyspace])
    return StoreContents(
        seen.revision,
        {keyspace: {item.key: item for item in page} for keyspace, page in zip(Keyspace, seen.ranges, strict=True)},
    )
