"""No background task ends silently."""

import ast
import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from onager.supervision import Background, LoopEndedError, restarted, run_loops, unless_cut
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]


async def for_ever():
    await asyncio.Event().wait()


async def returns():
    await asyncio.sleep(0)


async def fails():
    await asyncio.sleep(0)
    raise ValueError("a defect")


async def is_cut():
    """End as a call of gRPC's does whose channel is closed."""
    call = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(call.cancel)
    await call


@pytest.mark.parametrize("end", [returns, fails, is_cut])
async def test_a_loop_that_ends_ends_the_others_and_is_reported_by_name(end):
    other = for_ever()
    with capture_logs() as logs:
        async with asyncio.timeout(HANGS_S):
            with pytest.raises(LoopEndedError, match="watch of clouds") as raised:
                await run_loops(other=other, **{"watch of clouds": end()})
    assert raised.value.name == "watch of clouds"
    assert [(entry["event"], entry["loop"], entry["log_level"]) for entry in logs] == [
        ("loop_ended", "watch of clouds", "critical")
    ]
    assert other.cr_frame is None, "the other loop was ended, too"


async def test_the_innermost_loop_is_the_one_that_is_reported():
    with capture_logs() as logs:
        async with asyncio.timeout(HANGS_S):
            with pytest.raises(LoopEndedError, match="inner"):
                await run_loops(outer=run_loops(inner=returns()))
    assert [entry["loop"] for entry in logs] == ["inner"]


async def test_loops_that_their_owner_cancels_end_without_a_word():
    with capture_logs() as logs:
        loops = asyncio.create_task(run_loops(outer=run_loops(inner=for_ever()), other=for_ever()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loops.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loops
    assert logs == []


@pytest.mark.parametrize("end", [fails, is_cut])
async def test_an_errand_that_fails_ends_its_owner(end):
    background = Background()
    with capture_logs():
        async with asyncio.timeout(HANGS_S):
            background.start("fine", returns())
            background.start("errand", end())
            with pytest.raises(LoopEndedError, match="errand"):
                await background.run(loop=for_ever())


async def test_what_may_begin_anew_does_and_the_defect_is_reported():
    lives = []

    async def life():
        lives.append(len(lives))
        if len(lives) < 3:
            await (fails() if len(lives) == 1 else is_cut())

    with capture_logs() as logs:
        async with asyncio.timeout(HANGS_S):
            await restarted("a life", life, again_s=0)
    assert lives == [0, 1, 2]
    assert [entry["loop"] for entry in logs] == ["a life", "a life"]


async def test_a_call_that_is_cut_is_an_error_and_a_caller_who_is_cancelled_is_cancelled():
    with pytest.raises(ConnectionError, match="cut"):
        await unless_cut(is_cut(), ConnectionError("cut"))
    caller = asyncio.create_task(unless_cut(for_ever(), ConnectionError("cut")))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


WAITED_FOR = {
    "onager/supervision.py": {"_begin"},
    # Their starter awaits them, or learns how they ended.
    "scheduler/main.py": {"_run", "_drain"},
    "scheduler/jobs/job_writers.py": {"record_decision"},
    "scheduler/cluster/live_schedulers.py": {"_register"},
    "scheduler/cluster/remote_driver.py": {"_start"},
    "scheduler/connect/handler.py": {"_next"},
    "scheduler/engine/delivery_queue.py": {"_begin"},
    "scheduler/http/coalescing.py": {"get"},
    "scheduler/api/feeds.py": {"following"},
    "scheduler/http/server.py": {"serving_http"},
    "scheduler/http/streams.py": {"__call__", "_checked"},
    "onager/state_admin/watching.py": {"watch_records"},
    "executor/agent/agent.py": {"_drain"},
    "executor/agent/blobs.py": {"get"},
    "executor/agent/gateway.py": {"wait_for_call"},
    "executor/programs/attempt.py": {"_process", "_ended"},
    "executor/agent/requests.py": {"serve_connect_at", "_answer", "_connect_at"},
    "state_backend/etcd/streams.py": {"requested"},
    "state_backend/etcd/renewals.py": {"__init__"},
    "state_backend/etcd/watch.py": {"__aenter__"},
    "state_backend/locks.py": {"_try"},
    "state_backend/kept_lease.py": {"keep_lease"},
    "state_backend/local/backend.py": {"_start_sweeper"},
    "state_backend/etcd/backend.py": {"_start"},
    "state_backend/faulty.py": {"_send_late"},
}
"""Where tasks are made otherwise than by `onager.supervision`."""


def _makers(path):
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
                if name in ("create_task", "ensure_future", "TaskGroup"):
                    yield function.name


def test_tasks_are_created_only_under_supervision():
    found = {}
    for package in ("onager", "scheduler", "executor", "state_backend"):
        for path in (ROOT / package).rglob("*.py"):
            makers = set(_makers(path))
            if makers:
                found[str(path.relative_to(ROOT))] = makers
    assert found == WAITED_FOR
