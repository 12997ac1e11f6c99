"""What a process of the same user reads of a scheduler's environment and memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.security.parts import environment
from tests.support.processes.children import end, start
from tests.support.processes.ordinary import ordinary, read_by_others
from tests.support.waiting import until


@contextmanager
def running(log: Path, sign: str, *command: str) -> Iterator[int]:
    process = start(ordinary(*command), log, environment())
    try:
        until(lambda: sign in log.read_text(), lambda: f"{sign} in {log.read_text()}")
        yield process.pid
    finally:
        end(process)


def test_any_other_process_can_be_read(tmp_path):
    program = "import signal; print('ready', flush=True); signal.pause()"
    with running(tmp_path / "log", "ready", "-c", program) as pid:
        assert read_by_others(pid) == ["environ", "maps", "mem"]


def test_a_scheduler_cannot_be_read(tmp_path):
    command = ("-m", "onager", "scheduler", "--listen", "127.0.0.1:0", "--exchange-dir", str(tmp_path / "exchange"))
    with running(tmp_path / "log", "listening on", *command) as pid:
        assert read_by_others(pid) == []
