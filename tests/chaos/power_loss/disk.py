"""A disk that forgets: what may be left of recorded operations when the power fails after any of them.

What a sync has flushed is there. Of the other changes of names each may have reached the disk or not, and content that
was not synced may be anything. A rename is there as a whole or not at all, and changes of one name in their order.
"""

import os
import random  # noqa: TID251 seeded
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = 0

Slot = tuple[int, str]
"""A directory and a name in it."""


@dataclass(frozen=True, slots=True)
class Line:
    """An operation, as it was recorded."""

    word: str
    first: str
    second: str = ""


def read_record(path: Path) -> list[Line]:
    """Return the operations and marks in the record at *path*."""
    return [Line(*line.split("\t")) for line in path.read_text().splitlines()]


@dataclass(slots=True)
class Change:
    """Names that changed together: to which files or directories they lead now."""

    at: int
    """The number of its line."""
    slots: dict[Slot, int | None]
    makes_directory: int | None = None
    synced_at: int | None = None
    """The line from which on it is surely there."""
    after: list["Change"] = field(default_factory=list)
    """Without these it is not there."""


class UnreadableRecordError(Exception):
    """The record lacks something that happened."""


class Disk:
    """What was done to the names and files below one directory, which was empty in the beginning."""

    def __init__(self, root: Path, record: Sequence[Line], contents: Callable[[str], bytes]) -> None:
        """Read *record*; *contents* returns a synced content by its name."""
        self._root = root
        self._contents = contents
        self._names: dict[Slot, int] = {}
        self._directories = {ROOT}
        self._made = {ROOT: Change(-1, {}, ROOT, -1)}
        self._count = ROOT
        self._changes: list[Change] = []
        self._last: dict[Slot, Change] = {}
        self._synced: dict[int, list[tuple[int, str]]] = {}
        """Of each file: from which line on which content is surely there."""
        for at, line in enumerate(record):
            self._take(at, line)

    # ------------------------------------------------------------ reading the record

    def _take(self, at: int, line: Line) -> None:
        match line.word:
            case "create" | "mkdir":
                self._count += 1
                is_directory = line.word == "mkdir"
                if is_directory:
                    self._directories.add(self._count)
                change = self._change(at, {self._slot(line.first): self._count})
                change.makes_directory = self._count if is_directory else None
                self._made[self._count] = change
            case "link":
                self._change(at, {self._slot(line.second): self._node(line.first)})
            case "rename":
                moved = self._node(line.first)
                if self._slot(line.first) != self._slot(line.second):
                    self._change(at, {self._slot(line.first): None, self._slot(line.second): moved})
            case "remove":
                self._change(at, {self._slot(line.first): None})
            case "sync":
                self._sync(at, self._node(line.first), line.second)
            case "truncate" | "mark":
                pass
            case _:
                raise UnreadableRecordError(f"line {at}: {line}")

    def _slot(self, path: str) -> Slot:
        return self._node(os.path.dirname(path)), os.path.basename(path)  # noqa: PTH119, PTH120 - as recorded

    def _node(self, path: str) -> int:
        node = ROOT
        for part in Path(path).relative_to(self._root).parts:
            found = self._names.get((node, part))
            if found is None:
                raise UnreadableRecordError(f"{path} was not recorded")
            node = found
        return node

    def _change(self, at: int, slots: dict[Slot, int | None]) -> Change:
        change = Change(at, slots)
        change.after = [self._last[slot] for slot in slots if slot in self._last]
        for slot, node in slots.items():
            self._last[slot] = change
            if node is None:
                self._names.pop(slot, None)
            else:
                self._names[slot] = node
        self._changes.append(change)
        return change

    def _sync(self, at: int, node: int, content: str) -> None:
        if node not in self._directories:
            self._synced.setdefault(node, []).append((at, content))
            return
        for change in self._changes:
            if any(directory == node for directory, _ in change.slots):
                self._is_there(change, at)

    def _is_there(self, change: Change, at: int) -> None:
        if change.synced_at is None:
            change.synced_at = at
            for before in change.after:
                self._is_there(before, at)

    def check_complete(self, real: Path) -> None:
        """Raise `UnreadableRecordError` unless all operations together give the names that are at *real*."""
        there = {str(path.relative_to(real)) for path in real.rglob("*")}
        known = {path for path, _ in self._paths(self._names)}
        if there != known:
            raise UnreadableRecordError(f"recorded and real names differ: {sorted(there ^ known)[:20]}")

    def _paths(self, names: dict[Slot, int]) -> Iterable[tuple[str, int]]:
        """Yield the reachable paths, directories before what is in them."""
        by_directory: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), node in names.items():
            by_directory.setdefault(directory, []).append((name, node))
        waiting = [("", ROOT)]
        while waiting:
            above, directory = waiting.pop()
            for name, node in by_directory.get(directory, ()):
                yield above + name, node
                if node in self._directories:
                    waiting.append((f"{above}{name}/", node))

    # ------------------------------------------------------------ after the power has failed

    def rebuild(self, at: int, draw: random.Random, finals: Path) -> None:
        """Make the root what it may be when the power fails after line *at*.

        *finals*: the files as they were in the end, of which content that was never synced may be a part.
        """
        names: dict[Slot, int] = {}
        for change in self._survivors(at, draw):
            for slot, node in change.slots.items():
                if node is None:
                    names.pop(slot, None)
                else:
                    names[slot] = node
        ends = {node: finals / path for path, node in self._paths(self._names)}
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir()
        for path, node in self._paths(names):
            if node in self._directories:
                (self._root / path).mkdir()
            else:
                (self._root / path).write_bytes(self._content(node, at, draw, ends.get(node)))

    def _survivors(self, at: int, draw: random.Random) -> list[Change]:
        """Return the changes that are there, in their order."""
        done = [change for change in self._changes if change.at <= at]
        kept = {change.at for change in done if change.synced_at is not None and change.synced_at <= at}
        if draw.random() < 0.5:
            upto = draw.randint(-1, at)
            kept |= {change.at for change in done if change.at <= upto}
        else:
            likely = draw.choice((0.0, 0.2, 0.5, 0.8, 1.0))
            for change in done:
                if draw.random() < likely:
                    self._keep(change, kept)
        return [change for change in done if change.at in kept]

    def _keep(self, change: Change, kept: set[int]) -> None:
        """Keep a change that no sync has flushed, with what a file system writes before it."""
        if change.at in kept:
            return
        kept.add(change.at)
        for before in (*change.after, *(self._made[directory] for directory, _ in change.slots)):
            self._keep(before, kept)

    def _content(self, node: int, at: int, draw: random.Random, end: Path | None) -> bytes:
        synced = [name for line, name in self._synced.get(node, ()) if line <= at]
        if synced:
            return self._contents(synced[-1])
        whole = end.read_bytes() if end is not None and end.is_file() else b""
        return draw.choice((b"", whole[: len(whole) // 2], bytes(len(whole)), whole))
