"""What commands leave in a session: the commands themselves, of which only those are kept that still matter.

A view is replaced, and the command that made the old one goes, unless another one might have read it: a later command
with its name in it. Then the old one stays, to be carried out before that, and the new one is kept under another key,
``name~2``.
"""

import re
from typing import Final

from onager.protocol import onager_pb2 as pb

_SHORT: Final = ord("0")


def put_entry(
    session: pb.ConnectSession, kind: str, name: str, command: bytes
) -> tuple[list[pb.ConnectEntry], list[pb.ConnectEntry]]:
    """Return what is put and what is removed, for *command* that makes the *kind* called *name* in *session*."""
    mine = [entry for entry in session.entries if _is_of(entry, kind, name)]
    if not _needed(session, mine, name, command):
        return [_entry(session, kind, name, command)], mine
    last = max(int(entry.name.rpartition("~")[2]) if entry.name != name else 1 for entry in mine)
    return [_entry(session, kind, f"{name}~{last + 1}", command)], []


def removed_entry(
    session: pb.ConnectSession, kind: str, name: str, command: bytes
) -> tuple[list[pb.ConnectEntry], list[pb.ConnectEntry]]:
    """Return what is put and what is removed, for *command* that drops the *kind* called *name* in *session*."""
    mine = [entry for entry in session.entries if _is_of(entry, kind, name)]
    return put_entry(session, kind, name, command) if _needed(session, mine, name, b"") else ([], mine)


def _entry(session: pb.ConnectSession, kind: str, name: str, command: bytes) -> pb.ConnectEntry:
    """Return the entry of a command, with what it depends on in *session*."""
    made = pb.ConnectMade(command=command, database=session.database, conf=session.conf)
    return pb.ConnectEntry(kind=kind, name=name, command=made.SerializeToString())


def _is_of(entry: pb.ConnectEntry, kind: str, name: str) -> bool:
    base, _, number = entry.name.rpartition("~")
    return entry.kind == kind and (entry.name == name or (base == name and number.isdecimal()))


def _needed(session: pb.ConnectSession, mine: list[pb.ConnectEntry], name: str, command: bytes) -> bool:
    """Return whether a command that came after one of *mine*, or *command*, may have read what that made."""
    if not mine:
        return False
    before = list(session.entries)
    after = before[before.index(mine[0]) + 1 :]
    if any(_mentions(pb.ConnectMade.FromString(entry.command).command, name) > (entry in mine) for entry in after):
        return True
    return _mentions(command, name) > 1


def _mentions(command: bytes, name: str) -> int:
    """Return how often *name* is in a command, or what begins with it; a command that makes or drops it has it once.

    In an encoded message, a text comes after its length, which is no character of a word if the text is short.
    """
    text, wanted = command.lower(), re.escape(name.lower().encode())
    return len(re.findall(wanted if len(name) >= _SHORT else rb"(?<![a-z0-9_])" + wanted, text))
