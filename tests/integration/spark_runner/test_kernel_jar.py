"""The kernel is compiled once, by the first process, and then reused."""

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onager.errors import VersionMismatchError
from onager.executor.spark.kernel_jar import SOURCES, kernel_jar
from onager.executor.spark.session import start_session
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[3]
SHOW = """
import psutil
from onager.executor.spark import kernel_jar
build, built = kernel_jar.build, []
kernel_jar.build = lambda *arguments: (build(*arguments), built.append(1))
print(kernel_jar.kernel_jar(), len(built), psutil.Process().children())
"""


def test_two_first_starts_at_once_make_one_whole_jar(tmp_path, monkeypatch):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}

    def start(_):
        done = subprocess.run(
            [sys.executable, "-c", SHOW],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=HANGS_S,
            check=True,
        )
        return done.stdout.strip()

    with ThreadPoolExecutor(2) as both:
        jars, built, processes_left = zip(*[said.split(maxsplit=2) for said in both.map(start, range(2))], strict=True)
    (jar,) = set(jars)
    assert sorted(built) == ["0", "1"], "each has compiled"
    assert set(processes_left) == {"[]"}
    assert [p.name for p in (tmp_path / "onager").iterdir()] == [Path(jar).name]
    with zipfile.ZipFile(jar) as archive:
        assert archive.testzip() is None
        classes = set(archive.namelist())
    sources = list(SOURCES.rglob("*.java"))
    assert len(sources) > 50
    assert {source.relative_to(SOURCES).with_suffix(".class").as_posix() for source in sources} <= classes
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = Path(jar).stat().st_mtime_ns
    assert str(kernel_jar()) == jar
    assert Path(jar).stat().st_mtime_ns == before


def test_another_version_of_spark_is_refused(monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "4.4.0")
    with pytest.raises(VersionMismatchError, match=r"PySpark 4\.4\.0 is installed.*install pyspark~=4\.3\.0"):
        start_session(1, {}, "/tmp/exchange")
