"""A scheduler under abuse, and another client, which must not notice."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from onager.protocol.limits import CHANNEL_OPTIONS, MIB
from tests.support.waiting import HANGS_S, until

MAX_LOOKS = 30
"""How long another call may wait: as long as the probe takes for so many looks through a million numbers."""
MAX_GROWN = 64 * MIB
_HUGE = ("grpc.max_send_message_length", 256 * MIB)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `OK` or another code, and the text or the answer's bytes."""

    code: grpc.StatusCode
    text: str = ""
    content: bytes = b""


class Abused:
    """A scheduler process, with a probe that calls it all the while."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        environment = os.environ | {
            "ONAGER_SCHEDULER_BACKEND": f"leveldb:{directory / 'state'}",
            "ONAGER_SCHEDULER_EXCHANGE_DIR": str(directory / "exchange"),
            "ONAGER_SCHEDULER_LISTEN": "127.0.0.1:0",
            "ONAGER_SCHEDULER_LOG_FORMAT": "json",
            # Executors here send no heartbeats, and each call has a connection of its own.
            "ONAGER_SCHEDULER_EXECUTOR_LEASE_TTL_MS": "600000",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "onager", "scheduler"], env=environment, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("listening on "), self.log.read_text()
        self.address = line.removeprefix("listening on ").strip()
        self._probe = subprocess.Popen(
            [sys.executable, "-m", "tests.abuse.probe", self.address, str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask_probe(self, what: str) -> dict[str, float]:
        assert self._probe.stdin is not None
        assert self._probe.stdout is not None
        self._probe.stdin.write(f"{what}\n")
        self._probe.stdin.flush()
        found: dict[str, float] = json.loads(self._probe.stdout.readline())
        return found

    def close(self) -> None:
        self._probe.communicate()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=HANGS_S)

    def call(self, method: str, *requests: bytes, timeout_s: float = HANGS_S) -> list[Answer]:
        """Return the answers to *requests*, all made at once, of ``Service/Method`` of ours or ``/Service/Method``."""
        path = method if method.startswith("/") else f"/onager.v1.{method}"
        return asyncio.run(self._call(path, requests, timeout_s))

    async def _call(self, path: str, requests: tuple[bytes, ...], timeout_s: float) -> list[Answer]:
        options = [option for option in CHANNEL_OPTIONS if option[0] != _HUGE[0]]
        async with grpc.aio.insecure_channel(self.address, options=[*options, _HUGE]) as channel:
            call = channel.unary_unary(path)

            async def one(request: bytes) -> Answer:
                try:
                    return Answer(grpc.StatusCode.OK, content=await call(request, timeout=timeout_s))
                except grpc.aio.AioRpcError as error:
                    return Answer(error.code(), error.details() or "")

            return await asyncio.gather(*map(one, requests))


@pytest.fixture(scope="session")
def abused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Abused]:
    scheduler = Abused(tmp_path_factory.mktemp("abused"))
    yield scheduler
    scheduler.close()
    assert scheduler.process.returncode == 0


@pytest.fixture
def unnoticed(abused: Abused, tell: Callable[[str], None]) -> Iterator[Abused]:
    """Return the scheduler; at the end of the test nobody must have waited for long, and it must not have grown."""
    abused.ask_probe("begin")
    yield abused
    found = abused.ask_probe("end")
    tell(
        f"another call waited {found['longest_s']:.2f} s at most ({found['longest_wall_s']:.2f} s by the clock; "
        f"a look takes {found['look_s']:.3f} s), "
        f"the scheduler grew by {found['grown'] / MIB:.0f} MiB (for a moment by {found['peak'] / MIB:.0f}) "
        f"and computed {found['cpu_s']:.1f} s"
    )
    assert abused.process.poll() is None, abused.log.read_text()[-5000:]
    assert found["longest_s"] <= MAX_LOOKS * found["look_s"]
    if found["grown"] > MAX_GROWN:  # gRPC frees a refused message a little later
        until(lambda: abused.ask_probe("end")["grown"] <= MAX_GROWN, "the scheduler's memory of before")
