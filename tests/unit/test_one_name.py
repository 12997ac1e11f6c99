"""Installed, Onager is one package; its parts have no other name."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
PARTS = ("execution_graph", "executor", "scheduler", "state_backend")


def test_the_wheel_holds_one_package_and_all_of_it(tmp_path):
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path]
    source = tmp_path / "source"
    source.mkdir()
    for name in ("onager", *PARTS, "kernel"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    subprocess.run([*command, source], check=True, timeout=HANGS_S, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"onager"}
    kinds = {".py", ".proto", ".properties", ".pyi"}
    ours = {f"onager/{p.relative_to(ROOT)}" for part in PARTS for p in (ROOT / part).rglob("*") if p.suffix in kinds}
    ours |= {str(p.relative_to(ROOT)) for p in (ROOT / "onager").rglob("*") if p.suffix in kinds}
    assert len(ours) > 250
    assert ours <= names
    assert "onager/executor/spark/kernel.jar" in names
    static = Path("scheduler", "http", "static")
    assert {f"onager/{static / path.name}" for path in (ROOT / static).iterdir()} <= names


def test_the_parts_are_imported_as_parts_of_onager():
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for top in ("onager", *PARTS, "benchmarks", "deploy", "tests")
        for path in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if any(name.split(".")[0] in PARTS for name in _imported(node))
    ]
    assert wrong == []


def test_a_user_may_have_modules_of_those_names_and_start_python_above_a_checkout(tmp_path):
    for name in PARTS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "onager").mkdir()  # as a checkout is called
    code = "import onager.cli.app, onager.scheduler.main, onager.executor.main"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=HANGS_S)


def _imported(node):
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


CLIENT = """
import sys
import tomllib
for name in {blocked!r}:
    sys.modules[name] = None
import onager
import onager.cli.app, onager.cli.submit, onager.cli.output, onager.cli.live, onager.cli.admin, onager.cli.state
from onager.client.spec import python_message
client = onager.connect("127.0.0.1:1", connect_timeout_s=0)
assert python_message(lambda spark: spark.range(3), {{}})[0].pickled
sys.argv = ["onager", "executor", "--exchange-dir", "/x"]
onager.cli.app.main()
"""


def test_a_client_needs_nothing_that_only_clusters_need():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["all"]
    names = {re.match(r"[\w-]+", each)[0].replace("-", "_") for each in extra}
    blocked = sorted(
        names - {"grpcio_health_checking", "grpcio_reflection"} | {"grpc_health", "grpc_reflection", "py4j"}
    )
    command = [sys.executable, "-c", CLIENT.format(blocked=blocked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 2, done.stderr
    assert "which is not installed" in done.stderr
    assert "pip install 'onager[all]'" in done.stderr
