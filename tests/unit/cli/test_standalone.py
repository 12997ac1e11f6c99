"""The decisions of the supervisor; the end-to-end tests start the processes."""

import itertools
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from onager.cli import standalone
from onager.cli.java import version_of
from onager.cli.standalone import Standalone, layout
from onager.errors import InvalidSettingError


def test_directories_lie_below_the_users_data_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    state, exchange = tmp_path / "onager" / "state", tmp_path / "onager" / "exchange"
    assert layout(None, None, None) == (f"leveldb:{state}", state, exchange)


@pytest.mark.parametrize("is_backend", [False, True])
def test_a_state_directory_brings_its_exchange_directory(tmp_path, is_backend):
    state = tmp_path / "s"
    given = (f"leveldb:{state}", None) if is_backend else (None, str(state))
    assert layout(*given, None) == (f"leveldb:{state}", state, tmp_path / "s-exchange")
    assert layout(*given, str(tmp_path / "e")) == (f"leveldb:{state}", state, tmp_path / "e")


def test_with_etcd_only_the_exchange_has_a_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert layout("etcd://h:1", None, None) == ("etcd://h:1", None, tmp_path / "onager" / "exchange")
    assert layout("etcd://h:1", None, str(tmp_path / "e")) == ("etcd://h:1", None, tmp_path / "e")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("etcd://h:1", "d"), "--backend already says where the state is"),
        (("leveldb:", None), "name the state directory"),
    ],
)
def test_the_state_is_in_one_place(given, why):
    with pytest.raises(InvalidSettingError, match=why):
        layout(*given, None)


@pytest.mark.parametrize(
    ("listen", "reached"),
    [("0.0.0.0:5", "127.0.0.1:5"), ("[::]:5", "[::1]:5"), ("127.0.0.1:5", "127.0.0.1:5"), ("host:5", "host:5")],
)
def test_a_scheduler_that_listens_everywhere_is_reached_here(tmp_path, listen, reached):
    supervisor = Standalone(layout(None, str(tmp_path), None), listen, 1, {})
    assert supervisor._scheduler.arguments[4] == listen
    assert supervisor._executor.arguments[2] == reached


@pytest.mark.parametrize(
    ("listen", "given", "roots"),
    [
        ("127.0.0.1:5", [], []),
        ("127.0.0.1:5", ["/data", "/srv"], ["/data", "/srv"]),
        ("0.0.0.0:5", [], ["{0}/warehouse"]),
        ("0.0.0.0:5", ["/data"], ["/data"]),
    ],
)
def test_jobs_from_elsewhere_reach_only_tables_unless_roots_are_given(tmp_path, listen, given, roots):
    directories = layout(None, str(tmp_path / "state"), None)
    arguments = Standalone(directories, listen, 1, {}, roots=given, allow=["jdbc"])._executor.arguments
    named = [value for flag, value in itertools.pairwise(arguments) if flag == "--root"]
    assert named == [root.format(tmp_path) for root in roots]
    assert arguments[arguments.index("--allow") + 1] == "jdbc"


def test_the_executor_does_not_get_the_stores_password(monkeypatch, tmp_path):
    monkeypatch.setenv("ONAGER_ETCD_PASSWORD", "s3cret")
    monkeypatch.setenv("ONAGER_EXECUTOR_SLOTS", "1")
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nenv > "$4"\n')
    shell.chmod(0o755)
    monkeypatch.setattr(standalone.sys, "executable", str(shell))
    supervisor = Standalone(layout("etcd://h:1", None, str(tmp_path)), "127.0.0.1:0", 1, {})
    seen = {}
    for child in (supervisor._scheduler, supervisor._executor):
        child.arguments = (str(tmp_path / child.name),)
        child.on_line = None
        child.start()
        assert child.process.wait() == 0
        seen[child.name] = (tmp_path / child.name).read_text()
    assert "ONAGER_ETCD_PASSWORD=s3cret" in seen["scheduler"]
    assert "s3cret" not in seen["executor"]
    assert "ONAGER_EXECUTOR_SLOTS=1" in seen["executor"]


@pytest.fixture
def tokens(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tokens").write_text(f"ann admin {'a' * 32}\n{'w' * 32}\n")
    return tmp_path / "mine" / "tokens"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_the_executor_gets_the_token_of_an_executor_only_and_the_scheduler_takes_it(monkeypatch, tmp_path, tokens):
    monkeypatch.setenv("ONAGER_AUTH_TOKEN_FILE", str(tokens))
    for name in ("OUTGOING_AUTH_TOKEN_FILE", "TLS_KEY", "OUTGOING_TLS_KEY", "WEBHOOK_SECRET_FILE"):
        monkeypatch.setenv(f"ONAGER_SCHEDULER_{name}", str(tmp_path / name / "secret"))
    monkeypatch.setenv("ONAGER_EXECUTOR_PRIVATE_PATHS", '["/mine"]')
    supervisor = Standalone(layout(None, str(tmp_path / "state"), None), "127.0.0.1:50", 1, {})
    supervisor._tokens.refresh()
    executors = Path(supervisor._executor.environment["ONAGER_EXECUTOR_AUTH_TOKEN_FILE"])
    schedulers = Path(supervisor._scheduler.environment["ONAGER_SCHEDULER_AUTH_TOKEN_FILE"])
    (own,) = lines(executors)
    assert own.split()[1] == "executor"
    assert lines(schedulers)[:-2] == lines(tokens)
    assert lines(schedulers)[-2].split()[1] == "scheduler"
    assert lines(schedulers)[-1] == own
    assert {oct(path.stat().st_mode)[-3:] for path in (executors, schedulers)} == {"600"}
    assert json.loads(supervisor._executor.environment["ONAGER_EXECUTOR_PRIVATE_PATHS"]) == [
        *("/mine", str(tmp_path / "state"), str(tmp_path / "mine")),
        *(
            str(tmp_path / name)
            for name in ("OUTGOING_AUTH_TOKEN_FILE", "TLS_KEY", "OUTGOING_TLS_KEY", "WEBHOOK_SECRET_FILE")
        ),
        str(schedulers.parent.parent),
    ]
    tokens.write_text(f"ann admin {'b' * 32}\ntheirs executor {'e' * 32}\n")
    supervisor._tokens.refresh()
    assert lines(schedulers)[:-2] == lines(tokens)
    assert lines(executors) == [f"theirs executor {'e' * 32}", own]  # it counts at all schedulers of a cluster
    tokens.unlink()
    supervisor._tokens.refresh()
    assert lines(executors)[-1] == own
    supervisor._tokens.remove()
    assert not schedulers.parent.parent.exists()


def test_an_executors_token_file_that_the_user_names_is_kept(monkeypatch, tmp_path, tokens):
    monkeypatch.setenv("ONAGER_SCHEDULER_AUTH_TOKEN_FILE", str(tokens))
    monkeypatch.setenv("ONAGER_EXECUTOR_AUTH_TOKEN_FILE", "/theirs")
    supervisor = Standalone(layout(None, str(tmp_path / "state"), None), "127.0.0.1:50", 1, {})
    assert "ONAGER_EXECUTOR_AUTH_TOKEN_FILE" not in supervisor._executor.environment


def test_a_token_without_a_role_is_refused_by_the_name_of_its_file_where_others_call(monkeypatch, tmp_path, tokens):
    monkeypatch.setenv("ONAGER_AUTH_TOKEN_FILE", str(tokens))
    supervisor = Standalone(layout(None, str(tmp_path / "state"), None), "0.0.0.0:50", 1, {})
    with pytest.raises(InvalidSettingError, match=rf"{tokens}': the token of line 2 has no role"):
        supervisor.run()


def test_a_child_that_dies_is_started_again_ever_later(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(standalone.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(standalone.sys, "executable", "/bin/false")
    child = standalone._Child("child", (), {})
    waits = []
    for _ in range(7):
        child.start()
        child.process.wait()
        assert child.died() == 1
        assert child.died() is None
        waits.append(round(child.start_again_s - now_s, 1))
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    child.start()
    child.process.wait()
    now_s = 100.0
    child.died()
    assert child.start_again_s == pytest.approx(100.2)


def test_an_exchange_directory_that_cannot_be_made_ends_with_2(tmp_path, capsys):
    (tmp_path / "file").touch()
    directories = layout(None, str(tmp_path / "s"), str(tmp_path / "file" / "e" / "x"))
    assert Standalone(directories, "127.0.0.1:0", 1, {}).run() == 2
    assert capsys.readouterr().err == f"onager: {tmp_path / 'file' / 'e'} cannot be created: Not a directory\n"


def test_a_state_directory_that_is_a_file_ends_with_2_and_is_said_to_be_one(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert Standalone(layout(None, str(tmp_path / "file"), None), "127.0.0.1:0", 1, {}).run() == 2
    assert capsys.readouterr().err == f"onager: {tmp_path / 'file'} is no directory: give another one\n"


def test_port_0_is_replaced_by_a_free_one():
    host, _, port = standalone._with_free_port("127.0.0.1:0").partition(":")
    with socket.socket() as probe:
        probe.bind((host, int(port)))


def test_only_a_java_that_runs_has_a_version(tmp_path):
    assert version_of(tmp_path) is None
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    for reported, version in (('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_292"', 8)):
        java.write_text(f"#!{sys.executable}\nimport sys; sys.stderr.write('''{reported}''')")
        java.chmod(0o755)
        assert version_of(Path(tmp_path)) == version


def page_after_failed_start(directory: Path, at_first: str, **options: str) -> tuple[int | None, str]:
    supervisor = Standalone(layout(None, str(directory), None), "127.0.0.1:0", 1, {}, **options)
    child = supervisor._scheduler
    child.arguments = (*child.arguments[:-1], at_first)
    child.process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"])
    child.process.wait()
    return supervisor._keep_running(child), child.arguments[-1]


def test_the_page_moves_when_its_port_is_taken_while_the_scheduler_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(standalone._Child, "start", lambda _: None)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setattr(standalone, "_PAGE_LISTEN", taken)
        other.listen()
        code, page = page_after_failed_start(tmp_path, taken)
        assert code is None
        assert page not in (taken, "127.0.0.1:0")
        assert page_after_failed_start(tmp_path, taken, http_listen=taken) == (2, taken)
        # It is elsewhere already: that it fails has another reason, which stays.
        assert page_after_failed_start(tmp_path, page) == (2, page)
    # What it was given is free: it failed for another reason, which stays.
    assert page_after_failed_start(tmp_path, taken) == (2, taken)
