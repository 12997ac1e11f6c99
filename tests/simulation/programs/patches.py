"""What takes the place of the machine's where programs are."""

import random  # noqa: TID251 seeded
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from onager.errors import FetchFailedError
from tests.simulation.programs.hosts import hosts_patched
from tests.simulation.programs.process import clients_patched

if TYPE_CHECKING:
    from tests.simulation.world import World

_SWEEP_S = 4.0
_KEPT_BYTES = (64 * 1024, 64 * 1024, 400, 0)
"""How large the outcome of a call may be that lies in the store."""


@contextmanager
def programs_patched(world: "World") -> Iterator[None]:
    """Let programs run in *world*."""
    rng = random.Random(f"programs {world.seed}")
    files = _Files()
    with ExitStack() as stack:
        for target, replacement in (
            ("uuid.uuid4", lambda: uuid.UUID(int=rng.getrandbits(128), version=4)),
            ("onager.scheduler.connect.service.SWEEP_S", _SWEEP_S),
            ("onager.scheduler.program_limits.MAX_KEPT_BYTES", rng.choice(_KEPT_BYTES)),
            ("onager.scheduler.outcome_files._append", files.append),
            ("onager.scheduler.outcome_files._read", files.read),
            ("onager.scheduler.outcome_files._remove", files.remove),
            ("onager.scheduler.outcome_files._unlink", files.unlink),
        ):
            stack.enter_context(mock.patch(target, replacement))
        stack.enter_context(hosts_patched())
        stack.enter_context(clients_patched(world))
        yield


class _Files:
    """The files with outcomes of calls."""

    def __init__(self) -> None:
        self._content: dict[Path, bytes] = {}

    def append(self, path: Path, at: int, content: bytes, is_last: bool) -> None:  # noqa: FBT001 - as the product's
        del is_last
        assert len(self._content.get(path, b"")) == at, f"{path} has another length"
        self._content[path] = self._content.get(path, b"") + content

    def read(self, path: Path, at: int) -> tuple[Sequence[bytes], int]:
        from onager.scheduler.outcome_files import _HEADER

        if path not in self._content:
            raise FetchFailedError(f"what came of a call of a program is missing: {path}")
        content, responses = self._content[path], []
        while at < len(content):
            length, _ = _HEADER.unpack_from(content, at)
            responses.append(content[at + _HEADER.size : at + _HEADER.size + length])
            at += _HEADER.size + length
        return responses, at

    def remove(self, folder: Path) -> None:
        self._content = {path: content for path, content in self._content.items() if path.parent != folder}

    def unlink(self, path: Path) -> None:
        self._content.pop(path, None)
