"""The tools that start etcd for the tests."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.etcd import EtcdCluster, programs
from tests.support.etcd.cluster import RUNNING
from tests.support.etcd.known_bugs import LOST_WRITES, STALE_READS
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[3]

PARENT = """
import time
from tests.support.etcd import EtcdCluster

cluster = EtcdCluster(1)
cluster.start()
cluster.pause(0)
print(cluster.members[0].process.pid, flush=True)
time.sleep(600)
"""


def test_members_die_with_a_test_run_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        member = psutil.Process(int(parent.stdout.readline()))
        assert "etcd" in member.name()
        assert parent.poll() is None
        parent.kill()
        parent.wait()
        assert psutil.wait_procs([member], timeout=HANGS_S)[1] == []


def test_what_a_killed_run_left_is_removed_by_the_next(etcd):
    parent = etcd.members[0].directory.parents[1]
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    left = parent / f"onager-etcd-{gone.pid}-left"
    left.mkdir()
    with EtcdCluster(1):
        assert not left.exists()


def test_nothing_is_left_of_a_cluster():
    with EtcdCluster(1) as cluster:
        member = cluster.members[0]
        assert member.data.exists()
        assert cluster in RUNNING
    assert not member.directory.exists()
    assert not member.is_running
    assert cluster not in RUNNING


def test_a_missing_program_fails_with_the_way_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_UNPACKED", tmp_path / "unpacked")
    with pytest.raises(AssertionError, match=r"needs etcd 3.4.0 or later: it is neither on PATH.*make setup-dev"):
        programs.program.__wrapped__("etcd")
    old = tmp_path / "etcd"
    old.write_text("#!/bin/sh\necho etcd Version: 3.3.25\n")
    old.chmod(0o755)
    with pytest.raises(AssertionError, match=r"etcd is of version 3.3.25; run"):
        programs.program.__wrapped__("etcd")
    unpacked = tmp_path / "unpacked" / "etcd"
    unpacked.parent.mkdir()
    unpacked.write_text("#!/bin/sh\necho etcd Version: 3.5.28\n")
    unpacked.chmod(0o755)
    assert programs.program.__wrapped__("etcd") == unpacked


def test_a_member_that_cannot_start_fails_with_its_log():
    with pytest.raises(AssertionError, match=r"(?s)health of etcd's member m0.*no-such-flag"):
        EtcdCluster(1, flags=["--no-such-flag"]).start()


def test_known_bugs_are_reported_by_version():
    assert [STALE_READS.affects((3, 4, n)) for n in (19, 20, 41, 42)] == [False, True, True, False]
    assert [STALE_READS.affects((3, n, m)) for n, m in ((5, 27), (5, 28), (6, 8), (6, 9), (7, 0))] == [
        *(True, False),
        *(True, False),
        False,
    ]
    assert [LOST_WRITES.affects((3, n, m)) for n, m in ((4, 20), (4, 21), (5, 4), (5, 5), (6, 0))] == [
        *(True, False),
        *(True, False),
        False,
    ]
