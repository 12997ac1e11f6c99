"""What commands leave in a session: the commands themselves, of which only those are kept that still matter.

A view is replaced, and the command that made the old one goes, unless another one might have read it: a later command
with its name in it. Then the old one stays, to be carried out before that, and the new one is kept under another key,
``name~2``.
"""

import re
from collections.abc import Iterable
from typing import Final

from onager.protocol import onager_pb2 as pb

_SHORT: Final = ord("0")


def put_entry(
    entries: Iterable[pb.ConnectEntry], kind: str, name: str, command: bytes
) -> tuple[list[pb.ConnectEntry], list[pb.ConnectEntry]]:
    """Return what is put and what is removed, for *command* that makes the *kind* called *name*."""
    return _changed(list(entries), kind, name, command)


def removed_entry(
    entries: Iterable[pb.ConnectEntry], kind: str, name: str, command: bytes
) -> tuple[list[pb.ConnectEntry], list[pb.ConnectEntry]]:
    """Return what is put and what is removed, for *command* that drops the *kind* called *name*."""
    before = list(entries)
    mine = [entry for entry in before if _is_of(entry, kind, name)]
    if not _needed(before, mine, name, b""):
        return [], mine
    return _changed(before, kind, name, command)


def _changed(
    before: list[pb.ConnectEntry], kind: str, name: str, command: bytes
) -> tuple[list[pb.ConnectEntry], list[pb.ConnectEntry]]:
    mine = [entry for entry in before if _is_of(entry, kind, name)]
    if not mine:
        return [pb.ConnectEntry(kind=kind, name=name, command=command)], []
    if not _needed(before, mine, name, command):
        return [pb.ConnectEntry(kind=kind, name=name, command=command)], mine
    last = max(int(entry.name.rpartition("~")[2]) if entry.name != name else 1 for entry in mine)
    return [pb.ConnectEntry(kind=kind, name=f"{name}~{last + 1}", command=command)], []


def _is_of(entry: pb.ConnectEntry, kind: str, name: str) -> bool:
    base, _, number = entry.name.rpartition("~")
    return entry.kind == kind and (entry.name == name or (base == name and number.isdecimal()))


def _needed(before: list[pb.ConnectEntry], mine: list[pb.ConnectEntry], name: str, command: bytes) -> bool:
    """Return whether a command that came after one of *mine*, or *command*, may have read what that made."""
    if not mine:
        return False
    after = before[before.index(mine[0]) + 1 :]
    if any(_mentions(entry.command, name) > (entry in mine) for entry in after):
        return True
    return _mentions(command, name) > 1


def _mentions(command: bytes, name: str) -> int:
    """Return how often *name* is in a command, or what begins with it; a command that makes or drops it has it once.

    In an encoded message, a text comes after its length, which is no character of a word if the text is short.
    """
    text, wanted = command.lower(), re.escape(name.lower().encode())
    return len(re.findall(wanted if len(name) >= _SHORT else rb"(?<![a-z0-9_])" + wanted, text))
