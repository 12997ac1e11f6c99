"""Tables, views and functions on a real cluster: what a job makes, others read; two that change the same conflict."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import onager
from onager.errors import JobFailedError
from tests.e2e.conftest import UNFUSED, Gate
from tests.support.processes.cluster import Cluster

SHOP = """\
CREATE DATABASE shop COMMENT 'what is sold';
USE shop;
CREATE TABLE sales (id BIGINT, amount INT, day STRING) USING csv PARTITIONED BY (day) LOCATION '{sales}';
ALTER TABLE sales ADD PARTITION (day='mon') PARTITION (day='tue');
CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2;
CREATE VIEW by_day AS SELECT day, sum(twice(amount)) AS amount FROM sales GROUP BY day"""
BY_DAY = "SELECT * FROM shop.by_day ORDER BY day"


@pytest.fixture
def cluster(shared_cluster) -> Iterator[Cluster]:
    """A cluster whose queries may run programs, by which they are held."""
    yield shared_cluster
    shared_cluster.client.sql("DROP DATABASE IF EXISTS shop CASCADE").wait()


@pytest.fixture
def sales(tmp_path) -> Path:
    """A directory of files in Hive's layout; the catalog does not know its last partition."""
    for day, lines in {"mon": "1,10\n2,20\n", "tue": "3,5\n", "wed": "4,100\n"}.items():
        directory = tmp_path / "sales" / f"day={day}"
        directory.mkdir(parents=True)
        (directory / "part.csv").write_text(lines)
    return tmp_path / "sales"


@pytest.fixture
def shop(cluster: Cluster, sales: Path) -> Cluster:
    cluster.client.sql(SHOP.format(sales=sales)).wait()
    return cluster


def answer(client: onager.OnagerClient, text: str, **options) -> list[tuple]:
    return [tuple(row.values()) for row in client.sql(text, **options).to_arrow().to_pylist()]


def gated(gate: Gate) -> str:
    """Return a query of one row that waits at *gate*."""
    waits = f"touch {gate.directory}/held-$$; while [ ! -e {gate.directory}/open ]; do sleep 0.02; done; cat"
    return f"SELECT TRANSFORM(id) USING '{waits}' AS (id INT) FROM range(1)"


def read_in_python(spark):
    return spark.table("shop.by_day").orderBy("day")


def test_what_a_script_makes_is_there_for_other_jobs_and_sessions(cluster, sales, tmp_path):
    script = tmp_path / "shop.sql"
    script.write_text(SHOP.format(sales=sales))
    made = cluster.cli("submit", "-f", str(script))
    assert made.returncode == 0, made.stderr
    expected = [("mon", 60), ("tue", 10)]
    with onager.connect(cluster.address) as other:
        jobs = [other.sql(BY_DAY, conf=conf) for conf in ({}, UNFUSED)] * 2  # on both executors
        assert [[tuple(row.values()) for row in job.to_arrow().to_pylist()] for job in jobs] == [expected] * 4
        assert [tuple(row.values()) for row in other.python(read_in_python).to_arrow().to_pylist()] == expected
        other.sql("USE shop; MSCK REPAIR TABLE sales; ALTER TABLE sales DROP PARTITION (day='mon')").wait()
        assert answer(other, "SHOW PARTITIONS shop.sales") == [("day=tue",), ("day=wed",)]
        other.sql(
            "ALTER TABLE shop.sales RENAME TO shop.sold; ALTER VIEW shop.by_day AS SELECT id FROM shop.sold"
        ).wait()
    assert answer(cluster.client, "SELECT id, shop.twice(amount) FROM shop.sold ORDER BY id") == [(3, 10), (4, 200)]
    assert answer(cluster.client, "SELECT id FROM shop.by_day ORDER BY id") == [(3,), (4,)]
    assert (sales / "day=mon" / "part.csv").exists(), "statements move no files"


def test_a_job_that_fails_has_changed_nothing(cluster):
    with pytest.raises(JobFailedError, match="TABLE_OR_VIEW_NOT_FOUND"):
        cluster.client.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT); SELECT * FROM shop.nothing").wait()
    assert "shop" not in [entry.database for entry in cluster.client.catalog()]
    with pytest.raises(JobFailedError, match=r"SCHEMA_NOT_FOUND.*`shop`"):
        cluster.client.sql("CREATE TABLE shop.t (a INT)").wait()


def test_the_commands_show_the_catalog(shop, sales):
    def printed(*arguments: str) -> str:
        done = shop.cli("catalog", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert printed("ls").split()[-2:] == ["default", "shop"]
    assert json.loads(printed("ls", "shop", "-o", "json")) == [
        {"kind": kind, "database": "shop", "name": name}
        for kind, name in (("view", "by_day"), ("table", "sales"), ("function", "twice"))
    ]
    listed = [line.split() for line in printed("ls", "shop.sales").splitlines()]
    assert listed[-2:] == [[f"day={day}", f"file:{sales}/day={day}"] for day in ("mon", "tue")]
    shown = printed("show", "shop.sales", "--partitions")
    assert shown.startswith("table shop.sales\n")
    assert "day=mon" in shown
    assert json.loads(printed("show", "shop.by_day", "--json"))["kind"] == "view"
    missing = shop.cli("catalog", "show", "shop.nothing")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no table, view or function shop.nothing" in missing.stderr


def test_jobs_that_change_one_table_at_once_all_do(shop):
    """Each is planned anew when another was before it: three times at most, where there are three others."""
    for change in ("SET TBLPROPERTIES ('p{0}'='{0}')", "ADD PARTITION (day='d{0}')"):
        for job in [shop.client.sql(f"ALTER TABLE shop.sales {change.format(n)}") for n in range(4)]:
            job.wait()
    stored = shop.client.catalog_entry("shop", "sales").record
    assert {f"p{n}": f"{n}" for n in range(4)}.items() <= stored["spark"]["properties"].items()
    paths = [path for path, _ in shop.client.partitions("shop", "sales")]
    assert sorted(paths) == [*(f"day=d{n}" for n in range(4)), "day=mon", "day=tue"]


def test_a_job_that_planning_ends_is_planned_anew_when_another_has_changed_its_table(shop, gate):
    job = shop.client.sql(f"ALTER TABLE shop.sales SET TBLPROPERTIES ('by'='one'); {gated(gate)}")
    gate.wait()
    shop.client.sql("ALTER TABLE shop.sales SET TBLPROPERTIES ('by'='two', 'and'='more')").wait()
    gate.open()
    assert job.to_arrow().to_pylist() == [{"id": 0}]
    properties = shop.client.catalog_entry("shop", "sales").record["spark"]["properties"]
    assert (properties["by"], properties["and"]) == ("one", "more")
    assert shop.tasks(job.id)[0, 0]["attempts"] == 2


def test_a_query_whose_table_was_dropped_meanwhile_fails_and_names_it(shop, gate):
    job = shop.client.sql(f"ALTER TABLE shop.sales SET TBLPROPERTIES ('by'='one'); {gated(gate)}", conf=UNFUSED)
    gate.wait()
    shop.client.sql("DROP TABLE shop.sales").wait()
    gate.open()
    with pytest.raises(JobFailedError, match=r"table shop\.sales was changed by another job .* submit it again"):
        job.wait()
    assert [entry.name for entry in shop.client.catalog("shop")] == ["by_day", "twice"]
