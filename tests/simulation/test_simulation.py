"""The same seeds each time, `make simulate` draws new ones; and the promise that a seed always tells the same story."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.loop import VirtualLoop
from tests.simulation.oracles import Oracles
from tests.simulation.planted import PLANTED
from tests.simulation.world import World, simulate

SEEDS = range(1, 25)
ROOT = Path(__file__).parents[2]


def test_seeds(tell):
    counts, virtual_s = Counter(), 0.0
    with multiprocessing.get_context("spawn").Pool(min(4, os.cpu_count() or 1)) as pool:
        for report in pool.imap_unordered(simulate, SEEDS):
            assert report.violation is None, report.as_text()
            counts, virtual_s = counts + report.counts, virtual_s + report.virtual_s
    tell(
        f"{len(SEEDS)} seeds: {virtual_s / 3600:.1f} virtual hours, {counts['executions']} executions, "
        f"{counts['executor_lost']} losses, {counts['jobs successful']} jobs successful, "
        f"{counts['jobs failed']} failed, {counts['jobs cancelled']} cancelled, "
        f"{counts['attempts of programs']} attempts of programs, {counts['calls of programs']} calls of theirs, "
        f"{counts['calls of programs replayed']} replayed, {counts['writes of programs']} writes; no violation"
    )
    assert counts["jobs successful"] > len(SEEDS) / 2
    assert counts["executor_lost"]
    assert counts["snapshots"] > counts["jobs successful"]
    assert counts["calls of programs replayed"]
    assert counts["writes of programs"]


@pytest.mark.parametrize("seed", [30, pytest.param(19, id="with-programs")])
def test_a_seed_tells_the_same_story_in_every_process(seed):
    digests = {simulate(seed).digest, simulate(seed).digest}
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout.split()[-1])
    assert len(digests) == 1
    assert simulate(seed + 1).digest not in digests


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1008, id="a-poll-that-a-later-one-has-overtaken-offers-its-slots-too"),
        pytest.param(910103, id="an-executor-polls-a-scheduler-that-cannot-read-the-job-that-waits"),
        pytest.param(701154, id="a-report-that-is-left-to-newer-schedulers-holds-up-others"),
        pytest.param(1953, id="an-old-scheduler-looks-for-ever-at-an-ended-job-of-a-newer-version"),
        pytest.param(7000081, id="a-task-cancelled-before-it-was-sent-keeps-its-slot"),
        pytest.param(7000426, id="a-session-gets-a-task-while-a-report-of-another-job-of-it-is-stored"),
        pytest.param(7000430, id="nobody-learns-that-a-session-has-room-again"),
        pytest.param(75147310349, id="a-launch-is-said-to-be-that-of-a-scheduler-which-leaves-that-very-moment"),
        pytest.param(163897562340, id="slots-of-no-use-to-a-job-count-as-its-and-keep-it-from-those-that-are"),
        pytest.param(879475520074, id="a-slot-that-five-jobs-cannot-use-is-kept-from-the-sixth"),
        pytest.param(13, id="a-re-plan-that-hangs-holds-the-only-slot"),
        pytest.param(7000570, id="a-poll-that-waits-turns-to-another-scheduler-with-its-old-list"),
        pytest.param(57846520424, id="the-end-by-a-re-plan-is-refused-since-the-catalog-has-changed"),
        pytest.param(316436584234, id="a-launch-is-being-written-when-the-executor-first-polls-another-scheduler"),
        pytest.param(1089931794598, id="a-plan-is-not-stored-while-jobs-with-the-same-plans-come-and-go"),
    ],
)
def test_what_a_seed_found_once_is_repaired(seed):
    report = simulate(seed)
    assert report.violation is None, report.as_text()


def test_a_violation_tells_the_seed_what_came_before_and_how_to_run_it_again():
    report = simulate(1, planted="end-not-atomic")
    assert "seed 1: job " in report.as_text()
    assert "store r" in report.as_text()
    assert report.as_text().endswith("again: python -m tests.simulation --seed 1 --trace")


def test_what_breaks_in_the_simulation_is_reported_too(monkeypatch):
    monkeypatch.setattr(Oracles, "check_jobs", lambda _: 1 / 0)
    assert "ZeroDivisionError" in simulate(2).violation


@pytest.mark.parametrize("works", [True, False])
def test_a_cluster_with_much_to_do_gets_the_time_for_it(works):
    world = World(1)

    async def wait():
        is_done = lambda: world.loop.time() > 250  # noqa: E731
        settled = asyncio.create_task(world._settle(is_done, "it waits"))
        while not settled.done():
            await asyncio.sleep(0.25)
            world.observer.tasks_done += works
        return settled.exception()

    try:
        found = run(world.loop, wait())
    finally:
        world._end()
    assert (found is None) == works, found


@pytest.fixture
def loop():
    made = VirtualLoop(1)
    yield made
    made.reap_tasks()
    made.close()


def run(loop, work):
    return loop.world.context.copy().run(loop.run_until_complete, work)


def test_time_jumps_and_nobody_waits(loop):
    began_s = time.monotonic()
    run(loop, asyncio.sleep(3_600))
    assert loop.time() == 3_600
    assert time.monotonic() - began_s < 60


def test_a_paused_process_does_nothing_and_then_goes_on(loop):
    received = []

    async def tick():
        while True:
            await asyncio.sleep(1)
            received.append(loop.time())

    process = loop.start_process("one")
    loop.spawn(process, tick())
    run(loop, asyncio.sleep(1.5))
    process.is_paused = True
    run(loop, asyncio.sleep(5))
    process.is_paused = False
    run(loop, asyncio.sleep(1.2))
    assert received == [1, 6.5, 7.5]


def test_a_killed_process_does_not_even_clean_up(loop):
    received = []

    async def work():
        try:
            await asyncio.sleep(1)
        finally:
            received.append("cleaned up")

    process = loop.start_process("one")
    loop.spawn(process, work())
    run(loop, asyncio.sleep(0.5))
    loop.kill(process)
    run(loop, asyncio.sleep(5))
    assert received == []


def _at_once(loop):
    loop.call_soon(_at_once, loop)


def _by_a_timer(loop):
    loop.call_later(0, _by_a_timer, loop)


@pytest.mark.parametrize("circle", [_at_once, _by_a_timer])
def test_who_never_lets_time_go_on_is_found(loop, monkeypatch, circle):
    monkeypatch.setattr("tests.simulation.loop.STEPS_OF_A_MOMENT", 1_000)

    async def begin():
        circle(asyncio.get_running_loop())

    loop.spawn(loop.start_process("dizzy"), begin())
    with pytest.raises(RuntimeError, match="dizzy goes round in circles"):
        loop.world.context.copy().run(loop.run_until_complete, asyncio.sleep(1))
    assert loop.reap_tasks() == 0


def test_there_are_no_threads_and_no_sockets(loop):
    async def name():
        return await asyncio.to_thread(lambda: asyncio.get_running_loop() is loop)

    assert run(loop, name())
    with pytest.raises(NotImplementedError):
        run(loop, asyncio.open_connection("127.0.0.1", 1))


def test_processes_take_turns_as_the_seed_says():
    def order(seed):
        loop, received = VirtualLoop(seed), []

        async def step(name):
            for _ in range(5):
                await asyncio.sleep(0)
                received.append(name)

        for name in "abc":
            loop.spawn(loop.start_process(name), step(name))
        run(loop, asyncio.sleep(1))
        loop.close()
        return "".join(received)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(10)}) > 5


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_what_a_planted_bug_replaces_is_there(name):
    with PLANTED[name]():
        pass
