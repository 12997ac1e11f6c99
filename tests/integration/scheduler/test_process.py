"""The scheduler as a process: started, killed, started again, and refused with a clear message."""

import asyncio
import os
import signal
import urllib.request
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.job_heads import JobHead
from onager.state_backend import Keyspace, open_backend
from tests.integration.scheduler.test_jobs import RESULT, two_stages
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.processes.children import free_port
from tests.support.processes.forked import fork_onager
from tests.support.waiting import HANGS_S, eventually


async def start(tmp_path, port, **settings):
    settings = {
        "backend": f"leveldb:{tmp_path / 'state'}",
        "listen": f"127.0.0.1:{port}",
        "exchange_dir": str(tmp_path / "exchange"),
        **settings,
    }
    environment = {f"ONAGER_SCHEDULER_{name.upper()}": str(value) for name, value in settings.items()}
    return await fork_onager("scheduler", environment=os.environ | environment)


@asynccontextmanager
async def process(tmp_path, port, **settings):
    started = await start(tmp_path, port, **settings)
    try:
        line = await asyncio.wait_for(started.stdout.readline(), HANGS_S)
        assert line.startswith(b"listening on"), (await started.stderr.read()).decode()
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def refusal(tmp_path, **settings):
    started = await start(tmp_path, **{"port": 0, **settings})
    _, err = await asyncio.wait_for(started.communicate(), HANGS_S)
    text = [line for line in err.decode().splitlines() if line.startswith("onager scheduler:")]
    assert started.returncode == 2, err.decode()
    assert len(text) == 1
    return text[0]


async def test_kill_9_of_the_scheduler_in_the_middle_costs_no_finished_task(tmp_path):
    port = free_port()
    half = asyncio.Event()
    may_go_on = asyncio.Event()

    def run(task_set, task):
        report = two_stages(width=8)(task_set, task)
        if task_set.stage_id == 1 and task.partition >= 4:
            half.set()
            if not may_go_on.is_set():
                return None
        return report

    client = Client(f"127.0.0.1:{port}")
    async with executor(f"127.0.0.1:{port}", "e1", run) as e1:
        async with process(tmp_path, port) as first:
            await client.submit("job-1")
            await client.submit("job-2")
            await half.wait()
            await eventually(lambda: len(e1.held) == e1.slots)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        running = list(e1.held.values())
        may_go_on.set()
        async with process(tmp_path, port):
            # Tasks that ran when the scheduler died continue, and are reported to its successor.
            await client.stub.ListJobs(pb.ListJobsRequest(), wait_for_ready=True)

            async def is_known():
                (info,) = (await client.stub.ListExecutors(pb.ListExecutorsRequest())).executors
                return info.last_seen_ms

            await eventually(is_known)
            await e1.finish(running, two_stages(width=8))
            for job_id in ("job-1", "job-2"):
                assert (await client.wait(job_id)).state == pb.SUCCESSFUL
                assert await client.fetch(job_id) == RESULT
                detail = await client.detail(job_id)
                assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}
        assert Counter(e1.ran).most_common(1)[0][1] == 1
        assert e1.registrations == 1
    await client.close()


async def test_sigterm_ends_at_once_while_polls_wait(tmp_path):
    port, poll_ms = free_port(), round(2000 * HANGS_S)
    async with (
        process(tmp_path, port, poll_wait_max_ms=poll_ms) as scheduler,
        executor(f"127.0.0.1:{port}", "e1", two_stages()) as e1,
    ):
        e1.wait_ms = poll_ms
        client = Client(f"127.0.0.1:{port}")
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        scheduler.send_signal(signal.SIGTERM)
        # The poll that waits would do so for longer.
        assert await asyncio.wait_for(scheduler.wait(), HANGS_S) == 0
        await e1.stop()
        await client.close()


async def fetch_metrics(port):
    """Return the samples that the scheduler serves, by name and labels as they are written."""

    def get():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANGS_S) as answer:
            return answer.read().decode()

    text = await asyncio.to_thread(get)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


async def test_metrics_of_the_store_are_served_on_request(tmp_path):
    port, metrics_port = free_port(), free_port()
    client = Client(f"127.0.0.1:{port}")
    async with (
        process(tmp_path, port, metrics_listen=f"127.0.0.1:{metrics_port}"),
        executor(f"127.0.0.1:{port}", "e1", two_stages()),
    ):
        before = await fetch_metrics(metrics_port)
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        after = await fetch_metrics(metrics_port)
        commits = 'onager_state_request_seconds_count{operation="put_txn",outcome="ok"}'
        assert after[commits] >= before.get(commits, 0) + 3
        written = 'onager_state_bytes_total{direction="written"}'
        assert after[written] > before[written]
        assert after["onager_state_watches"] > 0
        assert after['onager_state_watch_events_total{keyspace="JobHeads"}'] > 0
        assert after["process_resident_memory_bytes"] > 0
        assert after["onager_executor_call_seconds_count"] == 0  # the executor waits for the answers to its polls
        error = await refusal(tmp_path, backend="memory:", metrics_listen=f"127.0.0.1:{metrics_port}")
        assert f"--metrics-listen='127.0.0.1:{metrics_port}'" in error
        assert "cannot be used" in error
    await client.close()


async def test_what_keeps_a_scheduler_from_starting_is_reported_in_one_line(tmp_path):
    port = free_port()
    async with process(tmp_path, port):
        error = await refusal(tmp_path)
        assert "state" in error
        assert str(tmp_path / "state") in error
        error = await refusal(tmp_path, port=port, backend="memory:")
        assert f"127.0.0.1:{port}" in error
        assert "another process listens there" in error
    (tmp_path / "file").write_text("not a directory")
    error = await refusal(tmp_path, exchange_dir=str(tmp_path / "file"))
    assert "exchange directory" in error
    assert "--exchange-dir" in error
    error = await refusal(tmp_path, backend=f"leveldb:{tmp_path / 'file'}")
    assert str(tmp_path / "file") in error
    error = await refusal(tmp_path, backend="oracle:x")
    assert "leveldb:DIR" in error


async def test_a_state_directory_of_a_newer_version_is_refused(tmp_path):
    async with await open_backend(f"leveldb:{tmp_path / 'state'}") as backend:
        head = JobHead(job_id="j", name="", client_id="", state="queued", submitted_ms=0, schema_version="2.0")
        await backend.put(Keyspace.JobHeads, "j", head.encoded())
    error = await refusal(tmp_path)
    assert "schema version 2" in error
    assert "use the release of Onager that wrote it" in error


@pytest.mark.parametrize("busy", [False, True])
async def test_an_executor_process_that_dies_is_missed_at_once(tmp_path, busy):
    """With and without a waiting poll: well before its lease of a minute ends."""
    port = free_port()
    sleeper = await asyncio.create_subprocess_exec("sleep", "600")
    async with process(tmp_path, port, executor_lease_ttl_ms=60_000):
        client = Client(f"127.0.0.1:{port}")
        async with executor(f"127.0.0.1:{port}", "e1", lambda *_: None, pid=sleeper.pid) as e1:
            if busy:
                await client.submit("job-1")
                await eventually(lambda: e1.held)
            else:
                await eventually(lambda: e1.lists)
            await e1.stop()
            sleeper.kill()
            await sleeper.wait()

            async def is_lost():
                found = await client.stub.ListExecutors(pb.ListExecutorsRequest())
                return [e.state for e in found.executors] == ["lost"]

            await eventually(is_lost)  # long before its lease ends
        await client.close()
