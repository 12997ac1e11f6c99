"""The principal that floods: ``python -m benchmarks.floods.attacker FLOOD ADDRESS TOKEN COUNT``.

It says by a line of JSON when the flood stands, and again, after a line of input, what came of it.
"""

import asyncio
import gzip
import json
import secrets
import sys
import tarfile
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import grpc
from pyspark import SparkFiles
from pyspark.sql.connect import functions as sf
from pyspark.sql.connect import proto
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import LongType

from onager.protocol.limits import CHANNEL_OPTIONS

_SERVICE: Final = "/spark.connect.SparkConnectService"
_OF_A_SESSION: Final = 50
_SHORT: Final = "SELECT count(*) FROM range(100)"
_ENDLESS: Final = "SELECT sum(hash(id)) FROM range(100000000000000)"
_ONE_AT_A_TIME: Final = {"onager.session": "flood", "onager.session.max-tasks": "1"}
_SETTLED_S: Final = 2.0
_AGAIN_S: Final = 1.0
"""How long after an error a stream is opened again."""
_ARCHIVES_AT_ONCE: Final = 2
_MIB: Final = 1024**2
_FILES_MIB: Final = 400
_NAME_MIB: Final = 600
_WHY_CHARS: Final = 120


class Flood:
    """Streams of one principal, which are opened again when they end, and what came of them."""

    def __init__(self, channel: Any, token: str) -> None:
        self._channel = channel
        self._metadata = [("authorization", f"Bearer {token}")]
        self._sessions: dict[int, str] = {}
        self._configured: dict[str, asyncio.Task[None]] = {}
        self._unsettled: set[asyncio.Task[None]] = set()
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    async def stand(self, streams: int, stream: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        """Open streams; return when each was refused or has an answer, or for silent ones when no more are refused."""
        self._open = [asyncio.create_task(stream(number)) for number in range(streams)]
        self._unsettled |= set(self._open)
        while self._unsettled:
            before = len(self._unsettled)
            await asyncio.sleep(_SETTLED_S)
            for task in self._open:
                if task.done():
                    task.result()  # a defect: streams are opened again for ever
            if len(self._unsettled) == before and not self._sessions:
                return

    async def stop(self) -> None:
        """End all streams, and their sessions."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        for session in self._sessions.values():
            request = proto.ReleaseSessionRequest(session_id=session)
            await self._unary("ReleaseSession", request)

    async def upload(self, _: int) -> None:
        """Send nothing."""
        await self._again(lambda: self._channel.stream_unary(f"{_SERVICE}/AddArtifacts")(metadata=self._metadata))

    async def query(self, number: int) -> None:
        """Ask for the rows of a short query, again and again."""
        await self._again(lambda: self._execute(number, _rows(_SHORT)))

    async def command(self, number: int) -> None:
        """Have a short query analysed, as ``spark.sql`` does, again and again."""
        plan = proto.Plan()
        plan.command.sql_command.input.sql.query = _SHORT
        await self._again(lambda: self._execute(number, plan))

    async def wait(self, number: int) -> None:
        """Ask for the rows of a query that waits for another one of the session."""
        session = self._session(number)
        if session not in self._configured:
            request = proto.ConfigRequest(session_id=session)
            for key, value in _ONE_AT_A_TIME.items():
                request.operation.set.pairs.add(key=key, value=value)
            self._configured[session] = asyncio.create_task(self._unary("Config", request))
        await asyncio.shield(self._configured[session])
        await self._again(lambda: self._execute(number, _rows(_ENDLESS)))

    async def _again(self, opened: Callable[[], Any]) -> None:
        while True:
            call = opened()
            try:
                why = await self._to_its_end(call)
            finally:
                call.cancel()
            is_first = asyncio.current_task() in self._unsettled
            self._settle()
            (self.refused if why and is_first else self.ended)[why or "rows"] += 1
            if why:
                await asyncio.sleep(_AGAIN_S)

    async def _to_its_end(self, call: Any) -> str:
        try:
            if isinstance(call, grpc.aio.StreamUnaryCall):
                await call
            else:
                async for _ in call:
                    self._settle()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {(error.details() or '')[:_WHY_CHARS]}"
        return ""

    def _settle(self) -> None:
        self._unsettled.discard(asyncio.current_task())

    def _session(self, number: int) -> str:
        return self._sessions.setdefault(number // _OF_A_SESSION, str(uuid.uuid4()))

    def _execute(self, number: int, plan: Any) -> Any:
        request = proto.ExecutePlanRequest(session_id=self._session(number), operation_id=str(uuid.uuid4()), plan=plan)
        call = self._channel.unary_stream(f"{_SERVICE}/ExecutePlan")
        return call(request.SerializeToString(), metadata=self._metadata)

    async def _unary(self, method: str, request: Any) -> None:
        call = self._channel.unary_unary(f"{_SERVICE}/{method}")
        await call(request.SerializeToString(), metadata=self._metadata)


def _rows(text: str) -> Any:
    plan = proto.Plan()
    plan.root.sql.query = text
    return plan


async def streams(flood: str, address: str, token: str, count: int) -> None:
    """Flood with streams until a line comes."""
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        made = Flood(channel, token)
        kinds = {"uploads": made.upload, "waiting": made.wait, "queries": made.query, "commands": made.command}
        await made.stand(count, kinds[flood])
        say(made.refused, made.ended)
        await asyncio.to_thread(sys.stdin.readline)
        await made.stop()
        say(made.refused, made.ended)


class Archives:
    """Sessions with an archive each, and a function that reads it."""

    def __init__(self, address: str, token: str) -> None:
        self._remote = f"sc://localhost:{address.rpartition(':')[2]}/;token={token}"
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.is_over = False

    def run(self) -> None:
        """Do so until that is over, with both kinds of archive in turns."""
        number = 0
        while not self.is_over:
            number += 1
            with tempfile.TemporaryDirectory(prefix="onager-bench-") as directory:
                path = Path(directory) / "env.tar.gz"
                path.write_bytes(large_files(_FILES_MIB) if number % 2 else large_name(_NAME_MIB))
                self._use(path)

    def _use(self, path: Path) -> None:
        def archived(_: int) -> int:
            found = Path(SparkFiles.get("env")).rglob("*")
            return sum(file.stat().st_size for file in found if file.is_file())

        session = SparkSession.builder.remote(self._remote).create()
        try:
            session.addArtifacts(f"{path}#env", archive=True)
            rows = session.range(1).select(sf.udf(archived, LongType())("id")).collect()
        except Exception as error:  # noqa: BLE001 - it is what is to be seen
            self.refused[str(error).replace(str(path.parent), "…")[:_WHY_CHARS]] += 1
        else:
            self.ended[f"{rows[0][0] // _MIB} MiB read"] += 1
        finally:
            session.stop()


def large_files(mib: int) -> bytes:
    """Return an archive with a file of zeros, another one each time."""
    info = tarfile.TarInfo(f"{secrets.token_hex(8)}.bin")
    info.size = mib * _MIB
    return gzip.compress(info.tobuf()) + _zeros(mib) + gzip.compress(bytes(2 * tarfile.BLOCKSIZE))


def large_name(mib: int) -> bytes:
    """Return an archive with a file of a long name, another one each time."""
    first = tarfile.TarInfo(f"{secrets.token_hex(8)}.bin")
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, mib * _MIB
    return gzip.compress(first.tobuf() + info.tobuf(tarfile.GNU_FORMAT)) + _zeros(mib)


def _zeros(mib: int) -> bytes:
    piece = 16
    return gzip.compress(bytes(piece * _MIB)) * (mib // piece)


async def archives(address: str, token: str) -> None:
    """Flood with archives until a line comes."""
    made = Archives(address, token)
    running = [asyncio.create_task(asyncio.to_thread(made.run)) for _ in range(_ARCHIVES_AT_ONCE)]
    say(made.refused, made.ended)
    await asyncio.to_thread(sys.stdin.readline)
    made.is_over = True
    await asyncio.gather(*running)
    say(made.refused, made.ended)


def say(refused: Counter[str], ended: Counter[str]) -> None:
    """Say what came of it so far."""
    print(json.dumps({"refused": refused, "ended": ended}), flush=True)


def main() -> int:
    """Make a flood."""
    flood, address, token, count = sys.argv[1:]
    work = archives(address, token) if flood == "archives" else streams(flood, address, token, int(count))
    asyncio.run(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
