"""Files of schedulers are private, and a directory that others can access causes a warning."""

import os
import stat
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from onager.private_files import make_private_directory
from tests.integration.security.parts import Scheduler, environment, new_token
from tests.support.processes.children import end, start


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_directories_are_made_for_their_user_or_for_a_group(tmp_path):
    make_private_directory(tmp_path / "a" / "mine")
    assert mode(tmp_path / "a" / "mine") == "0700"
    make_private_directory(tmp_path / "a" / "ours", "group")
    assert mode(tmp_path / "a" / "ours") == "2770"


@pytest.mark.parametrize(
    ("given", "access", "advice"),
    [
        (0o755, "owner", "go-rwx"),
        (0o750, "owner", "go-rwx"),
        (0o755, "group", "o-rwx"),
        (0o2770, "group", ""),
        (0o700, "owner", ""),
    ],
)
def test_a_directory_that_is_there_is_left_as_it_is_and_reported(tmp_path, given, access, advice):
    tmp_path.chmod(given)
    with capture_logs() as logs:
        make_private_directory(tmp_path, access)
    assert mode(tmp_path) == f"{given:04o}"
    assert [log["advice"] for log in logs] == ([f"chmod {advice} {tmp_path}"] if advice else [])
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_private_directory(tmp_path / "file")


def test_the_files_of_a_scheduler_are_its_users_alone(tmp_path):
    new_token(tmp_path / "token")
    (tmp_path / "token").chmod(0o644)
    command = [sys.executable, "-m", "onager", "scheduler", "--backend", f"leveldb:{tmp_path}/state"]
    command += ["--listen", "127.0.0.1:0", "--exchange-dir", f"{tmp_path}/exchange"]
    command += ["--auth-token-file", f"{tmp_path}/token"]
    running = Scheduler.__new__(Scheduler)
    running.log = tmp_path / "log"
    running.process = start(command, running.log, environment() | {"ONAGER_SCHEDULER_LOG_FORMAT": "json"})
    try:
        running.address()
        for directory in (tmp_path / "state", tmp_path / "exchange"):
            assert mode(directory) == "0700"
            for path in directory.rglob("*"):
                assert mode(path) == ("0700" if path.is_dir() else "0600"), path
        assert any((tmp_path / "state").rglob("*.log"))
        assert "everybody_reads_tokens" in running.text
    finally:
        end(running.process)
