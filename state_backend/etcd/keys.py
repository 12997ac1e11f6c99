"""How keys are spelled in etcd: ``/namespace/Keyspace/key``, so that a keyspace, or a part of it, is a range."""

from typing import Final

from onager.state_backend.model import KeyRange, Keyspace

_AFTER_SLASH: Final = b"0"  # the byte after "/"


class KeyLayout:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        root = f"/{namespace}/".encode()
        self.schema = root + b"schema"
        """The version of Onager that wrote the namespace."""
        self.compaction = root + b"compaction"
        """The client that compacted last: written before each compaction."""
        self._keyspaces = {keyspace: root + f"{keyspace}/".encode() for keyspace in Keyspace}

    def key(self, keyspace: Keyspace, key: str) -> bytes:
        """Return the spelling of a key."""
        return self._keyspaces[keyspace] + key.encode()

    def name(self, keyspace: Keyspace, spelled: bytes) -> str:
        """Return the key that *spelled* stands for."""
        return spelled[len(self._keyspaces[keyspace]) :].decode()

    def name_begins_at(self, keyspace: Keyspace) -> int:
        """Return the length of a spelled key's prefix before the key itself."""
        return len(self._keyspaces[keyspace])

    def below(self, keyspace: Keyspace, prefix: str) -> tuple[bytes, bytes]:
        """Return first and end (exclusive) of the keys below *prefix*, which is empty or ends with a slash."""
        first = self._keyspaces[keyspace] + prefix.encode()
        return first, first[:-1] + _AFTER_SLASH

    def range(self, key_range: KeyRange) -> tuple[bytes, bytes]:
        """Return first and end (exclusive) of *key_range*; the first may come after the end."""
        first, end = self.below(key_range.keyspace, key_range.prefix)
        if key_range.start_after is not None:
            first = max(first, self.key(key_range.keyspace, key_range.start_after) + b"\x00")
        return first, end
