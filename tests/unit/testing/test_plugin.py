"""The pytest plugin is found where Onager is installed, and costs nothing where it is not used."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_pytest_finds_it():
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert hasattr(import_module(entry_points["onager"]), "assert_distributed_eq")


def test_it_imports_neither_spark_nor_arrow():
    code = "import onager.testing.plugin, sys; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
