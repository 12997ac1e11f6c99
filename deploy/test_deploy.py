"""``make test-deploy``: the local cluster as its users meet it; what docker-compose and kubectl make of their files.

Needs haproxy, docker-compose and kubectl.
"""

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import onager
from deploy.monitoring.alerts import ALERTS
from onager.client.progress import JobState
from onager.executor.settings import ExecutorSettings
from onager.protocol.security import ClientSecurity
from onager.scheduler.settings import SchedulerSettings
from tests.support.processes.children import end, free_ports, start

ROOT = Path(__file__).resolve().parents[1]
JOBS = ROOT / "tests" / "e2e" / "jobs.py"

pytestmark = pytest.mark.timeout(600)


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, f"this test needs {name}: sudo apt-get install {name}"
    return found


def until(condition, within_s: float, what: str, log: Path) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"{what} is not to be seen:\n{log.read_text()}"
        time.sleep(0.05)


class Cluster:
    """What ``make cluster`` starts."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.address, self.page_address = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.directory = directory / "cluster"
        self.log = directory / "log"
        where = ["--directory", str(self.directory), "--listen", self.address, "--page-listen", self.page_address]
        os.chdir(ROOT)
        command = [sys.executable, "-m", "deploy.local_cluster", *where, *flags]
        self.process = start(command, self.log, os.environ)

    def await_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return f"onager is ready at {self.address}" in self.log.read_text()

        until(is_ready, 300.0, "a cluster", self.log)

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)
        until(lambda: f"{name} is dead (code -9)" in self.log.read_text(), 10.0, "a death", self.log)

    def pid(self, name: str) -> int:
        return int((self.directory / f"{name}.pid").read_text())

    def connect(self) -> onager.OnagerClient:
        secrets = self.directory / "secrets" / "client"
        safe = ClientSecurity(tls_ca=secrets / "ca.pem", auth_token_file=secrets / "token")
        return onager.connect(self.address, security=safe if secrets.exists() else ClientSecurity())

    def page(self) -> str:
        """Return what a browser gets at the address of the page."""
        ca = self.directory / "secrets" / "client" / "ca.pem"
        scheme, context = ("https", ssl.create_default_context(cafile=ca)) if ca.exists() else ("http", None)
        with urllib.request.urlopen(f"{scheme}://{self.page_address}/", timeout=10, context=context) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture(params=["plain", "tls"])
def cluster(request, tmp_path) -> Iterator[Cluster]:
    program("haproxy")
    started = Cluster(tmp_path, *(("--tls",) if request.param == "tls" else ()))
    try:
        started.await_ready()
        yield started
    finally:
        end(started.process, 60.0)


def test_two_of_three_schedulers_and_haproxys_way_to_them_die_in_the_middle_of_a_job(cluster, tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    arguments = {"gate": str(gate), "partitions": 4, "held": 1}
    conf = {"onager.fusion.maxBytes": 0, "spark.sql.shuffle.partitions": 4}
    with cluster.connect() as client:
        job = client.python(f"{JOBS}:gated_range", args=arguments, conf=conf)
        until(lambda: any(gate.glob("held-*")), 120.0, "the job at its gate", cluster.log)
        schedulers = {s.scheduler_id: s.answering for s in client.schedulers()}
        assert len(schedulers) == 3
        # The one that serves this client dies, and another one.
        for name in sorted(schedulers, key=schedulers.get)[1:]:
            cluster.kill(name)
        assert job.progress().state is JobState.RUNNING
        (gate / "open").touch()
        assert job.to_arrow().num_rows == 1000
        tasks = [task for stage in job.detail().progress.stages for task in stage.tasks]
        assert {task.successes for task in tasks} == {1}
        assert len({s.pid for s in client.schedulers()} & {cluster.pid(name) for name in schedulers}) >= 1
        # A new client finds the one that is left, through HAProxy.
        with cluster.connect() as another:
            assert another.sql("SELECT 1 AS one").to_arrow().to_pylist() == [{"one": 1}]
    # So does a browser.
    assert "<title>Onager</title>" in cluster.page()


def test_prometheus_collects_from_all_schedulers_and_has_the_rules(cluster):
    (address,) = re.findall(r"(http://\S+)/alerts", cluster.log.read_text())

    def asked(path: str) -> Any:
        with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def targets_up() -> Counter[str]:
        return Counter(t["labels"]["job"] for t in asked("targets")["activeTargets"] if t["health"] == "up")

    until(lambda: targets_up() == {"onager": 3, "etcd": 3}, 60.0, "all targets", cluster.log)
    (group,) = asked("rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} == {alert.name for alert in ALERTS}
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}


def test_ctrl_c_ends_all(cluster):
    pids = [int(file.read_text()) for file in cluster.directory.glob("*.pid")]
    assert len(pids) == 10
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait(60) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_docker_compose_accepts_its_file():
    done = subprocess.run(
        [program("docker-compose"), "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_kustomize_accepts_the_manifests():
    if shutil.which("kubectl") is None:
        pytest.fail("this test needs kubectl")
    done = subprocess.run(
        ["kubectl", "kustomize", "deploy/kubernetes"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kind: PodDisruptionBudget") == 3


def test_kustomize_adds_what_keda_needs(tmp_path):
    shutil.copytree(ROOT / "deploy" / "kubernetes", tmp_path / "kubernetes")
    with (tmp_path / "kubernetes" / "kustomization.yaml").open("a") as file:
        file.write("components: [keda]\n")
    done = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "kubernetes"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (scheduler,) = (d for d in done.stdout.split("---\n") if "kind: StatefulSet" in d and "name: scheduler\n" in d)
    assert "ONAGER_SCHEDULER_SCALER_LISTEN" in scheduler
    assert "ONAGER_SCHEDULER_BACKEND" in scheduler  # what was there is there
    assert "name: secrets" in scheduler
    assert "kind: ScaledObject" in done.stdout


def test_whatever_is_set_in_the_files_is_a_setting():
    files = [ROOT / "docker-compose.yml", ROOT / "Dockerfile", *(ROOT / "deploy" / "kubernetes").rglob("*.yaml")]
    files += [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    known = {f"ONAGER_SCHEDULER_{field.upper()}" for field in SchedulerSettings.model_fields}
    known |= {f"ONAGER_EXECUTOR_{field.upper()}" for field in ExecutorSettings.model_fields}
    for file in files:
        named = set(re.findall(r"ONAGER_(?:SCHEDULER|EXECUTOR)_[A-Z][A-Z_]*[A-Z]", file.read_text()))
        assert named <= known, file


def test_the_certificate_of_the_instructions_is_for_the_names_that_schedulers_advertise(tmp_path):
    text = (ROOT / "docs" / "deployment.md").read_text()
    (command,) = re.findall(r"^ *deploy/make-secrets secrets((?:.*\\\n)*.*)", text, re.MULTILINE)
    names = shlex.split(command.replace("\\\n", " "))
    subprocess.run([ROOT / "deploy" / "make-secrets", tmp_path, *names], check=True)
    manifest = (ROOT / "deploy" / "kubernetes" / "scheduler.yaml").read_text()
    (advertised,) = re.findall(r"ADVERTISE\n +value: (\S+):50050", manifest)
    host = advertised.replace("$(ONAGER_SCHEDULER_SCHEDULER_ID)", "scheduler-2")
    server = grpc.server(ThreadPoolExecutor(1))
    own = tmp_path / "scheduler"
    pair = (own / "server.key").read_bytes(), (own / "server.pem").read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    options = [("grpc.ssl_target_name_override", host)]
    trusted = grpc.ssl_channel_credentials((tmp_path / "client" / "ca.pem").read_bytes())
    try:
        with grpc.secure_channel(f"127.0.0.1:{port}", trusted, options) as channel:
            grpc.channel_ready_future(channel).result(10)
    finally:
        server.stop(None).wait()


def local_cluster(directory: Path) -> str:
    """Try to start a cluster in *directory*; return what it says."""
    command = [sys.executable, "-m", "deploy.local_cluster", "--directory", str(directory)]
    listen, page = (f"127.0.0.1:{port}" for port in free_ports(2))
    where = ["--listen", listen, "--page-listen", page]
    done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr


def test_a_directory_with_other_things_is_not_emptied(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "scheduler-1.log").touch()
    assert f"{tmp_path} holds other things (thesis.tex), and would be emptied" in local_cluster(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_the_directory_of_a_cluster_that_runs_is_left_alone(tmp_path):
    (tmp_path / "etcd-1").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", tmp_path], stdin=subprocess.PIPE
    ) as runs:
        (tmp_path / "etcd-1.pid").write_text(f"{runs.pid}\n")
        printed = local_cluster(tmp_path)
        runs.communicate()
    assert f"another cluster runs in {tmp_path} (etcd-1 is process {runs.pid})" in printed
    assert (tmp_path / "etcd-1").is_dir()


def test_the_bill_of_materials_has_each_package_that_runs_in_a_cluster_with_its_hashes(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    subprocess.run([ROOT / "scripts" / "pin", "--sbom", file], check=True, timeout=300)
    components = json.loads(file.read_text())["components"]
    pins = re.findall(r"^([a-z0-9-]+)==([\w.]+)", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE)
    assert {(each["name"], each["version"]) for each in components} == set(pins)
    assert all(reference.get("hashes") for each in components for reference in each["externalReferences"])
