"""What programs may record: calls and bytes of each, and bytes of all of them in the store.

What a program has recorded is counted when an attempt begins, and is in its record then. From there on each scheduler
adds what it records itself, so that no call has to count. What all have in the store is counted in each round of
sweeps, as far as it has changed.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from onager.errors import StateCorruptError, StateFullError
from onager.program_errors import ProgramLimitError
from onager.protocol.limits import MIB
from onager.scheduler.records import unpack
from onager.state_backend import Keyspace, StateBackendClient, each_page

MAX_CALLS: Final = 100_000
"""Calls of one program."""
MAX_BYTES: Final = 10 * 1024 * MIB
"""What came of them, in the store and in files."""
MAX_STORE_BYTES: Final = 64 * MIB
"""What of it lies in the store; what comes after that lies in files, but for less than a KiB of each call."""
MAX_KEPT_BYTES: Final = 64 * 1024
"""The responses to a call that lie in the store, if there is room; more of them lie in a file."""
_KEYS: Final = 2_000
_VALUES: Final = 200


@dataclass(slots=True)
class Usage:
    """What a program has recorded."""

    calls: int = 0
    store_bytes: int = 0
    """Of the records of its calls."""
    file_bytes: int = 0

    def has_room(self, coming: int) -> bool:
        """Return whether *coming* bytes more may lie in the store."""
        return coming <= MAX_KEPT_BYTES and self.store_bytes + coming <= MAX_STORE_BYTES

    def check_bytes(self, program_id: str, call: str, coming: int = 0) -> None:
        """Raise `ProgramLimitError` if *coming* bytes more, which came of *call*, are too many."""
        if self.store_bytes + self.file_bytes + coming > MAX_BYTES:
            raise ProgramLimitError(program_id, f"{MAX_BYTES // (1024 * MIB)} GiB", call)

    def check(self, program_id: str, call: str) -> None:
        """Raise `ProgramLimitError` if *call*, a new one, is one too many."""
        if self.calls >= MAX_CALLS:
            raise ProgramLimitError(program_id, f"{MAX_CALLS:,} calls", call)
        self.check_bytes(program_id, call)


class _Sized(msgspec.Struct):
    """The part of a call's record that says how large its file is."""

    file_bytes: int = 0


_sized: Final = msgspec.json.Decoder(_Sized)


def file_bytes_of(stored: bytes, what: str) -> int:
    """Return the bytes in a file of a call, by its record as *stored*; `StateCorruptError`, naming *what*."""
    try:
        return _sized.decode(unpack(stored, what)).file_bytes
    except msgspec.DecodeError as error:
        raise StateCorruptError(f"{what} cannot be read: {error}") from error


def _is_call(path: str) -> bool:
    """Return whether a record is that of a call, and no mark."""
    return path[-7:-6] == "/" and path[-6:].isdecimal()


class ProgramUsages:
    """What each program has recorded, as far as this scheduler knows."""

    def __init__(self, backend: StateBackendClient, *, limit_bytes: int) -> None:
        """All programs together may have *limit_bytes* in the store."""
        self._backend = backend
        self._limit_bytes = limit_bytes
        self._going_on: dict[str, tuple[int, Usage]] = {}
        """By the paths of programs: the revision of the attempt, and what it has recorded."""
        self._counted: dict[str, Usage] = {}
        """By the paths of programs: as last counted in the store."""
        self._all_bytes = 0
        """What all have in the store: as last counted, and what was recorded here since then."""

    # ---------------------------------------------------------------- one program

    def of_attempt(self, path: str, revision: int, at_begin: Usage) -> Usage:
        """Return what a program has recorded: *at_begin* of the attempt that *revision* names, and here since then."""
        known, usage = self._going_on.get(path, (0, at_begin))
        if known != revision:
            usage = replace(at_begin)
            self._going_on[path] = revision, usage
        return usage

    def add(self, usage: Usage, *, calls: int, store_bytes: int, file_bytes: int) -> None:
        """Take in that a program has recorded so much more."""
        usage.calls += calls
        usage.store_bytes += store_bytes
        usage.file_bytes += file_bytes
        self._all_bytes += store_bytes

    async def count(self, path: str) -> Usage:
        """Count in the store what a program has recorded."""
        usage = Usage()
        pages = each_page(self._backend.scan, Keyspace.ProgramCalls, f"{path}/", limit=_VALUES)
        async for page in pages:
            for item in page:
                usage.calls += _is_call(item.key)
                usage.store_bytes += len(item.key) + len(item.value)
                usage.file_bytes += file_bytes_of(item.value, f"ProgramCalls/{item.key}")
        return usage

    # ---------------------------------------------------------------- all programs

    @property
    def excess_bytes(self) -> int:
        """Return by how much what all programs have in the store is over their limit; at most 0: it is not."""
        return self._all_bytes - self._limit_bytes

    def check_room(self) -> None:
        """Raise `StateFullError` while all programs together have too much in the store for a new call."""
        if self.excess_bytes > 0:
            raise StateFullError(
                f"programs have recorded {self._limit_bytes:,} bytes, as much as they may all together "
                "(program_store_bytes): new calls wait until there is room. Remove programs that nobody goes on with "
                "(onager state rm), or raise the setting"
            )

    async def count_all(self, paths: Collection[str]) -> None:
        """Count what the programs of *paths* have in the store, those that have made no call since the last time not.

        Others are forgotten.
        """
        before = self._all_bytes
        counted: dict[str, Usage] = {}
        for path in paths:
            pages = each_page(self._backend.scan_keys, Keyspace.ProgramCalls, f"{path}/", limit=_KEYS)
            calls = sum([sum(map(_is_call, page)) async for page in pages])
            known = self._counted.get(path)
            counted[path] = known if known is not None and known.calls == calls else await self.count(path)
        self._counted = counted
        # What was recorded meanwhile is counted, too: once more at most.
        self._all_bytes += sum(usage.store_bytes for usage in counted.values()) - before
        for path in self._going_on.keys() - set(paths):
            del self._going_on[path]

    def forget(self, path: str) -> None:
        """Take in that a program is gone."""
        if (usage := self._counted.pop(path, None)) is not None:
            self._all_bytes -= usage.store_bytes
        self._going_on.pop(path, None)
