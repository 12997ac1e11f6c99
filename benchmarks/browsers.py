"""People who look at a large job while it runs: ``python -m benchmarks.browsers --json FILE``.

A real scheduler over LevelDB with its HTTP interface, executors without Spark, and a job of ``--tasks`` tasks that do
nothing. Once nobody looks at it, then one browser, then fifty, in turns. A browser does what the page does: it opens
the job, its first tasks, its timeline and its plan, follows progress and events, and reads job and timeline again.
All browsers come at once, when a tenth of the tasks is done. Meanwhile another client asks for another job again and
again, over gRPC, from a process of its own. With ``--chromium`` a real one opens the timeline, too, alone.

| figure | what it is |
|---|---|
| ``tasks_per_s`` | tasks of the job in a second, from its submission to its end; the median of the samples |
| ``first_picture_s`` | from the moment at which all browsers came: the median and the longest time until one had all |
| ``other_call_ms`` | how long a call of the other client took meanwhile: the median, the 99th percentile, the longest |
| ``refused`` | answers that were no success, of all browsers |
| ``dropped`` | streams that were closed before their end, since the browsers, all in one process, read too slowly |
| ``frame_ms`` | in Chromium: how long a frame took while the job ran: the median, the 99th percentile, the longest |
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import expect

import onager
from benchmarks.bare_cluster import BareCluster, store
from benchmarks.bare_executor import BareJob
from benchmarks.cluster import free_address
from benchmarks.state.machine import describe
from onager.client.job import JobHandle
from tests.support.browser import chromium, watched_page

_EXECUTOR_SLOTS: Final = (128, 128)
_CHROMIUM: Final = -1
"""Instead of a number of browsers: a real one."""
_EVENTS_BACK: Final = 500
_JOB_AGAIN_S: Final = 5.0
_TIMELINE_AGAIN_S: Final = 1.0
_PROBE_PAUSE_S: Final = 0.01
_STREAM_AGAIN_S: Final = 0.5
_POSITION: Final = re.compile(rb"^id: ?(\d+)\n", re.MULTILINE)
_TIMEOUT_S: Final = 600.0
_PICTURE: Final = """() => document.querySelector('[role=img][aria-label^="Attempts of "]') !== null"""
_FRAMES_S: Final = 4.0
_FRAMES: Final = """milliseconds => new Promise(done => {
  const found = [];
  let last = performance.now();
  const end = last + milliseconds;
  const step = now => {
    found.push(now - last);
    last = now;
    now < end ? requestAnimationFrame(step) : done(found);
  };
  requestAnimationFrame(step);
})"""


@dataclass(slots=True)
class Looked:
    """What browsers saw."""

    first_picture_s: list[float] = field(default_factory=list)
    refused: int = 0
    dropped: int = 0
    frames_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sample:
    """A job with its watchers."""

    tasks_per_s: float
    looked: Looked
    calls_s: list[float]


class Browser:
    """A page that shows a job."""

    def __init__(self, http: httpx.AsyncClient, job_id: str, looked: Looked) -> None:
        self._http = http
        self._root = f"/api/v1/jobs/{job_id}"
        self._looked = looked
        self._is_over = asyncio.Event()

    async def look(self) -> None:
        """Open the job, and follow it to its end."""
        begun_s = time.perf_counter()
        progress = asyncio.create_task(self._follow("progress"))
        job = await self._get("")
        _, timeline, _ = await asyncio.gather(
            self._get("/stages/1/tasks?limit=100"), self._get("/timeline"), self._get("/plan")
        )
        self._looked.first_picture_s.append(time.perf_counter() - begun_s)
        after = max(0, job.get("log_seq", 0) - _EVENTS_BACK)
        again = asyncio.gather(self._job_again(), self._timeline_again(timeline.get("position", 0)))
        await asyncio.gather(progress, self._follow(f"events?after={after}"))
        self._is_over.set()
        await again

    async def _get(self, path: str) -> Any:
        answer = await self._http.get(self._root + path)
        if answer.status_code != httpx.codes.OK:
            self._looked.refused += 1
            return {}
        return answer.json()

    async def _follow(self, path: str) -> None:
        """Read a stream to its end. One that is dropped, as this process reads too slowly, goes on where it was."""
        headers = {"accept": "text/event-stream"}
        while True:
            try:
                async with self._http.stream("GET", f"{self._root}/{path}", headers=headers) as answer:
                    if answer.status_code not in (httpx.codes.OK, httpx.codes.NO_CONTENT):
                        self._looked.refused += 1
                    async for some in answer.aiter_bytes():
                        if positions := _POSITION.findall(some):
                            headers["last-event-id"] = positions[-1].decode()
            except httpx.TransportError:
                self._looked.dropped += 1
                await asyncio.sleep(_STREAM_AGAIN_S)
            else:
                return

    async def _ticks(self, seconds: float) -> AsyncIterator[None]:
        while not self._is_over.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._is_over.wait()
            except TimeoutError:
                yield

    async def _job_again(self) -> None:
        async for _ in self._ticks(_JOB_AGAIN_S):
            await self._get("")

    async def _timeline_again(self, position: int) -> None:
        async for _ in self._ticks(_TIMELINE_AGAIN_S):
            timeline = await self._get(f"/timeline?after={position}")
            position = timeline.get("position", position)


def look(url: str, job_id: str, browsers: int) -> Looked:
    """Let *browsers* come at once, and return what they saw; to be called in a process of its own."""
    looked = Looked()

    async def all_look() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits) as http:
            await asyncio.gather(*(Browser(http, job_id, looked).look() for _ in range(browsers)))

    asyncio.run(all_look())
    return looked


def look_in_chromium(url: str, job_id: str) -> Looked:
    """Let a real browser show a job's timeline; to be called in a process of its own."""
    with chromium() as browser, watched_page(browser, url) as (page, _):
        page.goto("/jobs")
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        begun_s = time.perf_counter()
        page.goto(f"/jobs/{job_id}/timeline")
        page.wait_for_function(_PICTURE)  # looked for in every frame; an expectation, at times a second apart
        first_s = time.perf_counter() - begun_s
        frames_s = [ms / 1e3 for ms in page.evaluate(_FRAMES, 1e3 * _FRAMES_S)]
        return Looked([first_s], frames_s=frames_s)


def probe(address: str, job_id: str, is_over: Any) -> list[float]:
    """Ask for a job until asked to stop, and return how long each call took; to be called in a process of its own."""
    found = []
    with onager.connect(address) as client:
        job = client.job(job_id)
        while not is_over.is_set():
            begun_s = time.perf_counter()
            job.progress()
            found.append(time.perf_counter() - begun_s)
            time.sleep(_PROBE_PAUSE_S)
    return found


class Watched:
    """A cluster whose jobs are looked at."""

    def __init__(self, cluster: BareCluster, url: str, pool: ProcessPoolExecutor) -> None:
        self._cluster = cluster
        self._url = url
        self._pool = pool
        self._manager = multiprocessing.Manager()

    def sample(self, tasks: int, browsers: int) -> Sample:
        """Run a job of *tasks* tasks that so many browsers look at."""
        with self._cluster.connect() as client:
            other = client.submit(BareJob(1).spec)
            other.wait()
            is_over = self._manager.Event()
            begun_s = time.perf_counter()
            job = client.submit(BareJob(tasks).spec)
            _wait_for(job, tasks // 10)
            looking: Future[Looked] | None = None
            if browsers == _CHROMIUM:
                looking = self._pool.submit(look_in_chromium, self._url, job.id)
            elif browsers:
                looking = self._pool.submit(look, self._url, job.id, browsers)
            calls = self._pool.submit(probe, self._cluster.addresses[0], other.id, is_over)
            try:
                job.wait()
                elapsed_s = time.perf_counter() - begun_s
                looked = Looked() if looking is None else looking.result()
            finally:
                is_over.set()
            return Sample(tasks / elapsed_s, looked, calls.result())


def _wait_for(job: JobHandle, tasks: int) -> None:
    for progress in job.watch():
        if len(progress.stages) > 1 and progress.stages[1].successful >= tasks:
            return


def _row(tasks: int, browsers: int, samples: list[Sample]) -> dict[str, Any]:
    first = [s for sample in samples for s in sample.looked.first_picture_s]
    calls = sorted(s for sample in samples for s in sample.calls_s)
    frames = sorted(s for sample in samples for s in sample.looked.frames_s)
    return {
        "tasks": tasks,
        "browsers": "chromium" if browsers == _CHROMIUM else browsers,
        "frame_ms": _quantiles_ms(frames),
        "tasks_per_s": round(statistics.median(sample.tasks_per_s for sample in samples), 1),
        "first_picture_s": [round(statistics.median(first), 3), round(max(first), 3)] if first else None,
        "other_call_ms": _quantiles_ms(calls),
        "calls": len(calls),
        "refused": sum(sample.looked.refused for sample in samples),
        "dropped": sum(sample.looked.dropped for sample in samples),
    }


def _quantiles_ms(ordered_s: list[float]) -> list[float] | None:
    if not ordered_s:
        return None
    return [round(1e3 * ordered_s[min(len(ordered_s) - 1, int(q * len(ordered_s)))], 1) for q in (0.5, 0.99, 1)]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.browsers", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--browsers", default="0,1,50", help="how many look at a job; numbers with commas")
    parser.add_argument("--chromium", action="store_true", help="let a real browser draw the timeline, too")
    parser.add_argument("--repeats", type=int, default=3, help="samples of each")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON (default: printed)")
    options = parser.parse_args()
    counts = [int(part) for part in options.browsers.split(",")]
    if options.chromium:
        counts.append(_CHROMIUM)
    http = free_address()
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as directory:
        machine = describe(Path(directory))
        samples: dict[int, list[Sample]] = {count: [] for count in counts}
        with (
            store("leveldb", Path(directory)) as found,
            BareCluster(
                found.url,
                executor_slots=_EXECUTOR_SLOTS,
                scheduler_environment={"ONAGER_SCHEDULER_HTTP_LISTEN": http},
                directory=Path(directory),
            ) as cluster,
            ProcessPoolExecutor(2, mp_context=spawning) as pool,
        ):
            watched = Watched(cluster, f"http://{http}", pool)
            watched.sample(1_000, 1)
            for _ in range(options.repeats):
                for count, some in samples.items():
                    some.append(watched.sample(options.tasks, count))
    report = {
        "machine": {**machine, "load_at_end": round(os.getloadavg()[0], 2)},
        "repeats": options.repeats,
        "rows": [_row(options.tasks, count, some) for count, some in samples.items()],
    }
    if options.json is None:
        print(json.dumps(report, indent=1))
    else:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
