"""Outputs that jobs take of others, on a real cluster."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.conftest import UNFUSED
from tests.support.file_times import make_older, round_new
from tests.support.trees import below
from tests.support.waiting import until

QUERY = "SELECT k, sum(v) AS s FROM sales GROUP BY k ORDER BY k"
CLUSTER = UNFUSED | {"onager.reuse": "cluster"}


@pytest.fixture
def sales(tmp_path):
    return write(tmp_path / "sales.parquet", 1)


def write(file, factor):
    pq.write_table(pa.table({"k": [1, 2, 1, 3], "v": [factor, factor, factor, factor]}), file)
    return make_older(file)


def rows(job):
    return [tuple(row.values()) for row in job.to_arrow().to_pylist()]


def reused(job):
    """The job's stages that took outputs, with what they took."""
    found = {stage.stage_id: stage.name for stage in job.progress().stages if "reused from" in stage.name}
    return {number: name.partition("(reused from ")[2].rstrip(")") for number, name in found.items()}


def run(cluster, views, conf=CLUSTER):
    for path in views.values():
        round_new(path)
    job = cluster.client.sql(QUERY, views=views, conf=conf)
    return job, rows(job)


def files(cluster, job_id):
    return sorted(path.name for path in below(cluster.exchange_dir / job_id, "*.rows"))


def test_the_same_query_takes_what_is_there_until_a_file_changes(shared_cluster, sales):
    first, expected = run(shared_cluster, {"sales": sales})
    assert (expected, reused(first)) == ([(1, 2), (2, 1), (3, 1)], {})
    second, again = run(shared_cluster, {"sales": sales})
    assert (again, reused(second)) == (expected, {2: f"{first.id}/2"})
    printed = shared_cluster.cli("job", second.id, "--analyze").stdout
    assert f"reused from {first.id}/2" in printed, printed
    assert "not needed" in printed, printed
    assert not files(shared_cluster, second.id)
    assert reused(run(shared_cluster, {"sales": sales}, UNFUSED)[0]) == {}, "it did not ask for that"
    write(sales, 5)
    third, other = run(shared_cluster, {"sales": sales})
    assert (other, reused(third)) == ([(1, 10), (2, 5), (3, 5)], {})


def test_what_is_gone_is_computed_after_all(shared_cluster, sales):
    first, expected = run(shared_cluster, {"sales": sales})
    until(lambda: files(shared_cluster, first.id), "files")
    shutil.rmtree(shared_cluster.exchange_dir / first.id)
    second, again = run(shared_cluster, {"sales": sales})
    assert (again, reused(second)) == (expected, {})
    assert any(event.type == "outputs_taken" for event in second.events()), "it did not try to take it"
    third, _ = run(shared_cluster, {"sales": sales})
    assert reused(third) == {2: f"{second.id}/2"}, "the files that are gone are still offered"


def test_steps_of_a_script_take_from_each_other_and_leave_nothing(shared_cluster, sales, tmp_path):
    query = "USING json SELECT k, sum(v) AS s FROM sales GROUP BY k"
    steps = (("all", ""), ("two", " HAVING k = 2"), ("again", ""))
    script = "".join(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/{name}' {query}{more};\n" for name, more in steps)
    job = shared_cluster.client.sql(script, views={"sales": sales}, conf=UNFUSED)
    job.wait()
    assert reused(job.step("statement 3, line 3")) == {1: f"{job.id}.1/1"}
    assert reused(job.step("statement 2, line 2")) == {}, "it filters before it adds up"
    until(lambda: not any(files(shared_cluster, f"{job.id}.{n}") for n in (1, 2, 3)), "an empty exchange")
