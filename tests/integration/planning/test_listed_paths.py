"""A planning tells which directories it lists, so that it can be checked whether they are the cluster's."""

from pathlib import Path

import pytest

from onager.clock import ManualClock
from onager.errors import PlaceNotSeenError
from onager.executor.exchange.seen_places import SeenPlaces
from onager.executor.spark.place_checks import planning_in
from onager.ids import new_incarnation, new_nonce
from onager.place_files import WAREHOUSE, make_id
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.catalogs import planned_with
from tests.integration.planning.test_table_writes import folder, run
from tests.support.spark.one_executor import CUT, OneExecutor


@pytest.fixture
def files(executor: OneExecutor, tmp_path: Path) -> Path:
    for name in ("a", "b"):
        executor.spark.range(10).selectExpr("id", "id % 2 AS k").write.parquet(str(tmp_path / name))
    return tmp_path


@pytest.mark.parametrize("conf", [CUT, {}])
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT count(*) FROM a", ["a"]),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b)", ["a", "b"]),
        ("WITH x AS (SELECT * FROM a) SELECT (SELECT max(id) FROM b) + id FROM x", ["a", "b"]),
        ("SELECT * FROM parquet.`{files}/b` UNION ALL SELECT * FROM a", ["a", "b"]),
        ("SELECT 1 AS one FROM range(3)", []),
    ],
)
def test_it_tells_all_that_it_reads(executor, files, text, names, conf):
    views = [pb.View(name=name, path=str(files / name), format="parquet") for name in ("a", "b")]
    executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text.format(files=files)), views=views, conf=conf))
    assert sorted(set(executor.read)) == [f"file:{files}/{name}" for name in names]


def test_it_tells_of_tables_though_no_partition_of_them_is_read(executor):
    with planned_with(executor) as catalog:
        run(executor, catalog, "CREATE TABLE t (v INT, d STRING) USING parquet PARTITIONED BY (d)")
        executor.plan(pb.JobSpec(sql=pb.SqlScript(text="SELECT count(*) AS n FROM t WHERE d = 'none'"), conf=CUT))
        assert executor.read == [f"file:{folder(catalog, 't')}"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_was_listed_in_a_directory_that_is_another_one_now_is_not_used(executor, files, when):
    warehouse = files / "warehouse"
    (files / "a").rename(warehouse)
    place_id = new_nonce()
    make_id(str(warehouse), place_id)
    places = SeenPlaces({WAREHOUSE: str(warehouse)}, new_incarnation(), ManualClock())
    places.take([pb.PlaceVerdict(name=WAREHOUSE, id=place_id, admitted=True, generation=1)])
    places.look()
    spec = pb.JobSpec(sql=pb.SqlScript(text=f"SELECT count(*) AS n FROM parquet.`{warehouse}`"), conf=CUT)

    def lose() -> None:
        warehouse.rename(files / "away")
        executor.spark.range(3).selectExpr("id", "id % 2 AS k").write.parquet(str(warehouse))

    def planned() -> None:
        with planning_in(places) as note:
            executor.plan(spec)
            note(executor.read)
            if when == "meanwhile":
                lose()

    if when == "before":
        lose()
    with pytest.raises(PlaceNotSeenError, match="warehouse"):
        planned()
