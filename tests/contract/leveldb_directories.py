"""State directories to be read again, and to be damaged."""

from pathlib import Path

from onager.state_backend import Keyspace
from onager.state_backend.leveldb import LevelDBBackend

LOG = Keyspace.JobLog


async def fill(path: Path, count: int, start: int = 0) -> None:
    async with await LevelDBBackend.open(path) as backend:
        for n in range(start, start + count):
            await backend.put(LOG, f"job/{n:06}", b"%d" % n * 50)


async def read_all(path: Path) -> dict[str, bytes]:
    async with await LevelDBBackend.open(path) as backend:
        return {item.key: item.value for item in await backend.get_from_prefix(LOG, "")}


def files(path: Path, suffix: str) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix == suffix)
