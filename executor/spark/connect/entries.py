"""What commands leave in a session: the commands themselves, of which only those are kept that still matter.

They are carried out again in their order. The last one of a name matters, unless it drops what is called so. One before
it matters if a later one that matters reads what it made; then the later one of the same name has a number in its key,
``name~2``. One that drops matters where there is something to drop. A request needs, of those, what it reads.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CACHE, KEPT

VIEW: Final = "view"
GLOBAL_VIEW: Final = "global_view"
VARIABLE: Final = "variable"
"""A variable of SQL: its value, and not what gave it."""
_NAMED: Final = (CACHE, KEPT, "cached", "persisted")
"""What nobody reads who does not name it; it stays until a program takes it back. The last two are of release 0.2."""
_NO_VARIABLE: Final = b"[]"
ANYTHING: Final = "*"
"""What a command reads of which nobody knows what it reads."""


class _Left(NamedTuple):
    kind: str
    made: pb.ConnectMade

    @property
    def key(self) -> str:
        return f"{self.kind} {self.made.name}"


class Change(NamedTuple):
    """What is put into a session, and what is removed from it."""

    put: list[pb.ConnectEntry]
    removed: list[pb.ConnectEntry]


def made(session: pb.ConnectSession, kind: str, name: str, command: bytes, reads: Iterable[str]) -> Change:
    """Return the change for *command* that makes the *kind* called *name*; *reads*: kinds and names, ``view sales``."""
    return _change(session, kind, pb.ConnectMade(name=name, command=command, reads=sorted(reads)))


def dropped(session: pb.ConnectSession, kind: str, name: str, command: bytes) -> Change:
    """Return the change for *command* that drops the *kind* called *name*."""
    return _change(session, kind, pb.ConnectMade(name=name, command=command, drops=True))


def set_to(session: pb.ConnectSession, variables: Mapping[str, bytes]) -> Change:
    """Return the change by which *session* has *variables*, by name what sets each, and no others."""
    now = pb.ConnectSession()
    now.CopyFrom(session)
    before = {entry.made.name: entry.made for entry in map(_left, session.entries) if entry.kind == VARIABLE}
    for name, command in variables.items():
        if name not in before or before[name].drops or before[name].command != command:
            _apply(now, made(now, VARIABLE, name, command, ()))
    for name, was in before.items():
        if name not in variables and not was.drops:
            _apply(now, dropped(now, VARIABLE, name, _NO_VARIABLE))
    left = list(now.entries)
    return Change(
        [entry for entry in left if entry not in session.entries],
        [entry for entry in session.entries if entry not in left],
    )


def _apply(session: pb.ConnectSession, change: Change) -> None:
    gone = {(entry.kind, entry.name) for entry in (*change.put, *change.removed)}
    left = [entry for entry in session.entries if (entry.kind, entry.name) not in gone]
    del session.entries[:]
    session.entries.extend([*left, *change.put])


def _change(session: pb.ConnectSession, kind: str, left: pb.ConnectMade) -> Change:
    left.database = session.database
    left.conf.update(session.conf)
    before = [_left(entry) for entry in session.entries]
    *matter, does = _matter(
        [*before, _Left(kind, left)], {ANYTHING, *_keys_of(session, *_NAMED), f"{kind} {left.name}"}
    )
    pairs = list(zip(session.entries, matter, strict=True))
    keys = {each.name for each, is_kept in pairs if is_kept and each.kind == kind}
    key = next(key for key in _keys(left.name) if key not in keys)
    put = [pb.ConnectEntry(kind=kind, name=key, command=left.SerializeToString())] if does else []
    return Change(put, [each for each, is_kept in pairs if not is_kept])


def _keys(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}~{number}" for number in count(2))


def needed(session: pb.ConnectSession, reads: Iterable[str]) -> list[tuple[str, pb.ConnectMade]]:
    """Return, with their kinds and in their order, the commands that are to be carried out again for who *reads*."""
    entries = [_left(entry) for entry in session.entries]
    return [
        (entry.kind, entry.made) for entry, is_needed in zip(entries, _matter(entries, reads), strict=True) if is_needed
    ]


def cache(
    session: pb.ConnectSession, cache_id: str, command: bytes, reads: Iterable[str], *, slots: int, table: str
) -> Change:
    """Return the change that caches what *command*, an AnalyzePlanRequest, persists; *table*: "" for a DataFrame."""
    made = pb.ConnectMade(name=cache_id, command=command, reads=sorted(reads), slots=slots, table=table)
    return _change(session, CACHE, made)


def cached(session: pb.ConnectSession) -> list[pb.ConnectEntry]:
    """Return the entries of what is cached."""
    return [entry for entry in session.entries if entry.kind == CACHE]


def caches(session: pb.ConnectSession) -> set[str]:
    """Return, as reads, what is cached."""
    return _keys_of(session, CACHE)


def variables(session: pb.ConnectSession) -> set[str]:
    """Return, as reads, the variables of SQL that the session has, or had."""
    return _keys_of(session, VARIABLE)


def _keys_of(session: pb.ConnectSession, *kinds: str) -> set[str]:
    return {_left(entry).key for entry in session.entries if entry.kind in kinds}


def _left(entry: pb.ConnectEntry) -> _Left:
    return _Left(entry.kind, pb.ConnectMade.FromString(entry.command))


def _matter(entries: Sequence[_Left], reads: Iterable[str]) -> list[bool]:
    """Return, of each entry, whether it matters to who *reads* after all of them."""
    everything = {entry.key for entry in entries if entry.kind not in _NAMED}
    last = {entry.key: entry.made for entry in entries}

    def names(read: Collection[str]) -> set[str]:
        return everything | set(read) if ANYTHING in read else set(read)

    matter = [False] * len(entries)
    wanted: set[str] = set()
    more = names(set(reads))
    while more:  # a view of SQL reads what is called so when it is read, not when it is made
        wanted |= more
        more = {name for key in more if key in last for name in names(last[key].reads)} - wanted
    for at in reversed(range(len(entries))):
        entry = entries[at]
        matter[at] = entry.key in wanted and not entry.made.drops
        wanted.discard(entry.key)
        if matter[at]:
            wanted |= names(entry.made.reads)
    there: set[str] = set()
    for at, entry in enumerate(entries):
        if entry.made.drops:
            matter[at] = entry.key in there
            there.discard(entry.key)
        elif matter[at]:
            there.add(entry.key)
    return matter
