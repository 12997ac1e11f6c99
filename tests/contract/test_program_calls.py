"""Records of calls of programs on every store: one outcome stands, earlier attempts write nothing, counts are exact."""

import asyncio
from pathlib import Path

import pytest

from onager.clock import ManualClock
from onager.program_errors import AttemptSupersededError
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import request_of
from onager.scheduler.connect.call_names import CallName
from onager.scheduler.connect.failures import failed
from onager.scheduler.connect.program_calls import ProgramCall, ProgramCalls, ProgramStore
from onager.scheduler.outcome_files import OutcomeFiles
from onager.scheduler.program_limits import ProgramUsages
from onager.scheduler.programs import Programs
from onager.state_backend import Keyspace, StateBackendClient

PATH = "%/nightly"
LARGE = b"x" * 200_000


class Scheduler:
    """What a scheduler has for programs."""

    def __init__(self, backend: StateBackendClient, exchange_dir: Path) -> None:
        self.clock = ManualClock()
        usages, files = ProgramUsages(backend, limit_bytes=2**29), OutcomeFiles(str(exchange_dir))
        self.programs = Programs(backend, self.clock, usages, files, retention_s=60)
        self.calls = ProgramCalls(ProgramStore(backend, self.clock, files, usages))

    async def begin(self, letter: str) -> pb.BeginProgramResponse:
        return await self.programs.begin("", pb.BeginProgramRequest(program_id="nightly", secret=letter * 32, user="u"))

    async def call(self, number: int, letter: str = "a", attempt: int = 1) -> ProgramCall:
        request = request_of("AnalyzePlan")(session_id="s")
        request.tree_string.plan.root = b"relation"
        return await self.calls.find("", CallName("nightly", attempt, letter * 32, "0", number), "AnalyzePlan", request)


async def answers(call: ProgramCall) -> list[bytes]:
    return [each async for each in call.responses()]


@pytest.fixture
async def pair(backend: StateBackendClient, tmp_path: Path) -> list[Scheduler]:
    """Two schedulers, at which the first attempt of a program has begun."""
    made = [Scheduler(backend, tmp_path / "exchange") for _ in range(2)]
    await made[0].begin("a")
    return made


@pytest.mark.parametrize("size", [1, len(LARGE)])
async def test_of_outcomes_that_are_recorded_at_once_one_stands_for_all(pair: list[Scheduler], size: int) -> None:
    calls = [await pair[number % 2].call(1) for number in range(6)]
    await asyncio.gather(*(call.settle([b"%d" % number * size]) for number, call in enumerate(calls)))
    (first, *others) = [await answers(call) for call in [*calls, await pair[1].call(1)]]
    assert all(each == first for each in others)
    error = failed("X", "00000", "too late")
    await calls[0].settle_error(error)
    assert not error.is_recorded


async def test_an_earlier_attempt_records_nothing(pair: list[Scheduler], backend: StateBackendClient) -> None:
    early = await pair[0].call(1)
    await pair[1].begin("b")
    with pytest.raises(AttemptSupersededError):
        await early.settle([b"late"])
    with pytest.raises(AttemptSupersededError):
        await early.settle_error(failed("X", "00000", "late"))
    assert not await backend.scan_keys(Keyspace.ProgramCalls, limit=10)


async def test_what_is_recorded_is_counted_exactly_and_goes_at_once(
    pair: list[Scheduler], backend: StateBackendClient
) -> None:
    for number in range(1, 301):
        call = await pair[number % 2].call(number)
        await call.settle([LARGE if number % 100 == 0 else b"x" * (number % 7) * 5_000])
    usage = await pair[0].programs.usages.count(PATH)
    items = await backend.get_from_prefix(Keyspace.ProgramCalls, "")
    assert (usage.calls, usage.store_bytes) == (300, sum(len(item.key) + len(item.value) for item in items))
    assert 3 * len(LARGE) < usage.file_bytes < 3 * len(LARGE) + 100
    assert (await pair[1].begin("b")).calls == 300
    known = await pair[0].call(100, "b", 2)
    assert await answers(known) == [LARGE]
    await pair[0].programs.end("", pb.EndProgramRequest(program_id="nightly", attempt=2, secret="b" * 32))
    pair[1].clock.advance(120_000)
    assert (await pair[1].programs.sweep()).folders == set()
    assert not await backend.scan_keys(Keyspace.ProgramCalls, limit=10)
    assert not await backend.scan_keys(Keyspace.Programs, limit=10)
