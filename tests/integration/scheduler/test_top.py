"""`onager top` of a real scheduler: once, and live in a terminal while the scheduler goes and comes back."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
from contextlib import suppress

from structlog.testing import capture_logs

from onager.cli.top import top
from onager.clock import SystemClock
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.test_jobs import two_stages
from tests.support.fakes.scripted_executor import executor
from tests.support.http import http_scheduler
from tests.support.processes.tcp_proxy import TcpProxy
from tests.support.waiting import eventually

_ROWS_COLUMNS = struct.pack("HHHH", 40, 160, 0, 0)


def half(task_set, task):
    """Run the first stage of two, and hold the tasks of the second."""
    return two_stages()(task_set, task) if task_set.stage_id != 2 else None


async def test_it_tells_what_runs_what_waits_and_on_which_executors(tmp_path, capsys):
    async with (
        http_scheduler(MemoryBackend(MemoryStore(SystemClock())), tmp_path) as served,
        executor(served.address, "e1", half, slots=3) as e1,
    ):
        await served.submit("job-1", name="holds all slots")
        await eventually(lambda: len(e1.held) == 3)
        await served.submit("job-2", name="waits")

        async def printed(output):
            capsys.readouterr()
            with capture_logs():
                await asyncio.to_thread(top, served.address, 1.0, output, once=True)
            return capsys.readouterr().out

        seen = json.loads(await printed("json"))
        assert (seen["slots"], seen["slots_taken"], seen["jobs_waiting"]) == (3, 3, 1)
        first, second = seen["jobs"]
        counts = ("job_id", "tasks", "tasks_done", "tasks_running", "tasks_retried")
        assert [first[name] for name in counts] == ["job-1", 8, 5, 3, 0]
        assert (second["job_id"], second["state"]) == ("job-2", "queued")
        assert [each["executor_id"] for each in seen["executors"]] == ["e1"]

        lines = (await printed("text")).splitlines()
        assert lines[0] == "1 scheduler, 3 of 3 slots taken, 1 jobs going on, 1 waiting"
        of_job, waits = lines[4:6]
        assert of_job.split()[:2] == ["job-1", "running"]
        assert "5/8" in of_job
        assert waits.split()[:2] == ["job-2", "queued"]
        assert lines[-1].split()[:3] == ["e1", "alive", "3/3"]


async def test_in_a_terminal_it_goes_on_after_an_outage_until_it_is_interrupted(tmp_path):
    async with (
        http_scheduler(MemoryBackend(MemoryStore(SystemClock())), tmp_path) as served,
        TcpProxy(served.address) as proxy,
    ):
        await served.submit("job-1", name="watched")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, _ROWS_COLUMNS)
        command = ["-m", "onager", "top", "--every", "0.5", "--scheduler", proxy.address]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
        )
        os.close(theirs)
        os.set_blocking(ours, False)

        async def shows(text):
            shown = ""

            def is_so():
                nonlocal shown
                with suppress(BlockingIOError):
                    shown += os.read(ours, 1 << 16).decode(errors="replace")
                return text in shown

            await eventually(is_so, what=lambda: f"{text} in {shown}")

        try:
            await shows("job-1")
            proxy.refuse()
            proxy.cut()
            await shows("no scheduler")
            await proxy.accept()
            await shows("job-1")
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)
