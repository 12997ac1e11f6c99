"""Administration of a cluster's state store, through its schedulers."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from onager.client.connection import CALL_DEADLINE_S, Connection
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import BACKUP_FORMAT

_LONG_DEADLINE_S: Final = 3600.0
"""A check or a backup reads the whole store."""
_REMOVAL_DEADLINE_S: Final = 300.0


class ClusterState:
    """The state store, accessed through any scheduler that answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keys(self, prefix: str = "", limit: int = 1000) -> pb.ListStateResponse:
        """Return the keys below *prefix* (``Keyspace`` or ``Keyspace/key-prefix``)."""
        request = pb.ListStateRequest(prefix=prefix, limit=limit)
        answer: pb.ListStateResponse = self._call("ListState", request)
        return answer

    def value(self, key: str) -> pb.GetStateResponse:
        """Return one record (``Keyspace/key``), decoded to JSON."""
        answer: pb.GetStateResponse = self._call("GetState", pb.GetStateRequest(key=key))
        return answer

    def changes(self, prefix: str = "") -> Generator[pb.StateChange, None, None]:
        """Yield every change below *prefix* from now on; after a fail-over it continues where it stopped.

        The first change is ``watching``. ``lost`` says that events of a keyspace are missing; its current records
        follow as ``listed``.
        """
        from_revisions: dict[str, int] = {}
        seen: dict[str, set[str]] = {}
        base = 0

        def request() -> pb.WatchStateRequest:
            return pb.WatchStateRequest(prefix=prefix, from_revisions=from_revisions)

        for change in self._stream("WatchState", request):
            keyspace = change.key.partition("/")[0]
            if change.kind == "watching":
                if base == 0:
                    base = change.mod_revision
                    from_revisions.update(dict.fromkeys(change.keyspaces, base + 1))
                    yield change
                continue
            if change.kind == "lost":
                from_revisions[keyspace] = change.mod_revision + 1
            elif change.kind != "listed":
                # The stream may break between two changes of one revision, so it resumes at that revision.
                if from_revisions.get(keyspace, 0) != change.mod_revision:
                    seen[keyspace] = set()
                    from_revisions[keyspace] = change.mod_revision
                if change.key in seen.setdefault(keyspace, set()):
                    continue
                seen[keyspace].add(change.key)
            yield change

    def remove(self, path: str, *, is_dry_run: bool, is_forced: bool = False) -> pb.RemoveStateResponse:
        """Remove ``Keyspace/key``, or every record below ``Keyspace/`` or ``Keyspace/prefix/``."""
        request = pb.RemoveStateRequest(path=path, dry_run=is_dry_run, force=is_forced)
        answer: pb.RemoveStateResponse = self._call("RemoveState", request, _REMOVAL_DEADLINE_S)
        return answer

    def check(self) -> Iterator[pb.StateCheck]:
        """Yield the findings of a check; a message with `begins` restarts it, and invalidates earlier messages."""
        return self._stream("CheckState", pb.CheckStateRequest, _LONG_DEADLINE_S)

    def backup(self) -> Iterator[pb.StateBackup]:
        """Yield all records at one revision; a header restarts the backup, and invalidates earlier messages."""
        return self._stream("BackupState", lambda: pb.BackupStateRequest(format=BACKUP_FORMAT), _LONG_DEADLINE_S)

    def _call(self, method: str, request: Any, deadline_s: float = CALL_DEADLINE_S) -> Any:
        return self._connection.call(method, request, deadline_s=deadline_s)

    def _stream(self, method: str, request: Callable[[], Any], deadline_s: float | None = None) -> Iterator[Any]:
        """Yield the messages of a stream; *request* makes the request of it, again whenever it is opened again."""
        return self._connection.stream(
            lambda stub, left_s: getattr(stub, method)(request(), timeout=deadline_s or left_s)
        )
