"""Files of executors are private whatever the umask, or accessible to their group by a setting."""

import stat
from pathlib import Path

import pytest

from onager.executor.spark.jvm import Jvm
from tests.support.spark.runner import cut


def modes(directory: Path) -> dict[str, set[str]]:
    found = {"directories": set(), "files": set()}
    for path in directory.rglob("*"):
        found["directories" if path.is_dir() else "files"].add(f"{stat.S_IMODE(path.stat().st_mode):04o}")
    return found


def test_files_of_the_exchange_are_their_users_alone(spark, job, exchange_dir):
    frame = spark.range(0, 150_000, 1, 2).selectExpr("id", "sha2(CAST(id AS STRING), 256) h").repartition(2, "id")
    job.run_all(cut(spark, frame))
    directory = exchange_dir / job.job_id
    assert {path.suffix for path in directory.rglob("*.*")} == {".rows", ".arrow"}
    assert modes(directory) == {"directories": {"0700"}, "files": {"0600"}}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.fixture
def of_a_group(spark):
    conf = spark.sparkContext._jsc.sc().conf()  # the one of SparkEnv, whose classes py4j cannot all look at
    conf.set("spark.onager.exchangeAccess", "group")
    yield
    conf.remove("spark.onager.exchangeAccess")


@pytest.mark.usefixtures("of_a_group")
def test_they_are_a_groups_where_that_is_said(spark, tmp_path):
    tmp_path.chmod(0o2770)
    store = Jvm.of(spark).java_class("onager.store.Store")(str(tmp_path), "")
    store.create("job-1/1/a").commit()
    store.prepare("job-1/2")
    store.createIn("job-1/2/b").commit()
    assert modes(tmp_path) == {"directories": {"2770"}, "files": {"0660"}}
    assert {path.stat().st_gid for path in tmp_path.rglob("*")} == {tmp_path.stat().st_gid}


def test_tasks_that_write_local_files_carry_no_settings_of_hadoop(spark, tmp_path):
    jvm = Jvm.of(spark)
    store = jvm.java_class("onager.store.Store")

    def size(root: str) -> int:
        return len(jvm.java_class("onager.values.Serialization").encode(store(root, "")))

    assert size(str(tmp_path)) < 1_000
    assert size(f"file://{tmp_path}") < 1_000
