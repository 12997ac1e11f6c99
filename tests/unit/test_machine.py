"""What tells one machine from another."""

import os
import subprocess
import sys

import psutil
import pytest

from onager import machine
from onager.machine import this_machine
from onager.scheduler.settings import SchedulerSettings

SHOW = "from onager.machine import this_machine; print(this_machine())"


def _shown_by(*before):
    answer = subprocess.run([*before, sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def test_processes_of_one_machine_agree():
    assert _shown_by() == this_machine()


@pytest.mark.parametrize("namespace", ["--net", "--pid", "--uts"])
def test_a_container_is_a_machine_of_its_own(namespace):
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    inner = f"hostname elsewhere; exec {sys.executable} -c {SHOW!r}" if namespace == "--uts" else ""
    command = ["sh", "-c", inner] if inner else [sys.executable, "-c", SHOW]
    answer = subprocess.run(
        ["unshare", *root, namespace, "--fork", *command], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() not in ("", this_machine())


def test_another_boot_is_another_machine(tmp_path, monkeypatch):
    boot, seen = tmp_path / "boot_id", {this_machine()}
    monkeypatch.setattr(machine, "_BOOT", boot)
    for name in ("one", "two"):
        boot.write_text(f"{name}\n")
        seen.add(this_machine.__wrapped__())
    boot.unlink()  # as where there is no /proc: the time of the start has to do
    for at_s in (1.5, 2.5):
        monkeypatch.setattr(psutil, "boot_time", lambda at_s=at_s: at_s)
        seen.add(this_machine.__wrapped__())
    assert len(seen) == 5


def test_a_setting_names_the_machine(monkeypatch):
    assert SchedulerSettings().machine == this_machine()
    monkeypatch.setenv("ONAGER_SCHEDULER_MACHINE", "rack-4")
    assert SchedulerSettings().machine == "rack-4"
