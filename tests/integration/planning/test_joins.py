"""Every type of join by every way of joining, by existence, of several keys, and by the nearest row."""
# ruff: noqa: E501  (a query reads best on one line)

import pytest

from tests.integration.planning.joins import LEFT, OPERATORS, RIGHT, WAYS, joined
from tests.support.selection import some
from tests.support.spark.one_spark import settings

PLAIN_MERGE = {"spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "0"}
"""Otherwise sides that turn out small are hashed after all."""


@pytest.mark.parametrize(("hint", "types", "on", "operator"), some(pytest.param(*way[1:], id=way[0]) for way in WAYS))
def test_every_type(check, hint, types, on, operator):
    plan = check(joined(hint, types, on), conf=PLAIN_MERGE).plan
    assert {name for name in OPERATORS if name in plan} == {operator}


EXISTENCE = {
    "broadcast": ("broadcast(r)", "r.k = l.k", "BroadcastHashJoin"),
    "merge": ("merge(r)", "r.k = l.k", "SortMergeJoin"),
    "hash": ("shuffle_hash(r)", "r.k = l.k", "ShuffledHashJoin"),
    "nested loop": ("broadcast(r)", "r.n * 3 < l.id", "BroadcastNestedLoopJoin"),
}


@pytest.mark.parametrize(("hint", "on", "operator"), EXISTENCE.values(), ids=EXISTENCE.keys())
def test_exists_beside_another_condition(check, hint, on, operator):
    text = f"""
        select l.id from {LEFT} l
        where l.id % 7 = 0 or exists (select /*+ {hint} */ 1 from {RIGHT} r where {on})"""
    plan = check(text, conf=PLAIN_MERGE).plan
    assert operator in plan
    assert "ExistenceJoin" in plan


@pytest.mark.parametrize("kind", ["inner", "left", "full", "left anti"])
def test_three_tables_joined_by_several_keys(check, kind):
    columns = "l.id" if kind == "left anti" else "l.id, r.n"
    text = f"""
        select x.*, g.label from (
          select /*+ merge(r) */ {columns} from (select id, id % 3 a, cast(id % 4 as string) b from range(0, 40, 1, 3)) l
          {kind} join (select id n, id % 3 a, cast(id % 5 as string) b from range(0, 25, 1, 2)) r on l.a = r.a and l.b = r.b
        ) x left join groups g on x.id = g.k"""
    check(text)


@pytest.fixture
def as_of(executor):
    """The settings that let SQL join by the nearest row, for plain Spark, too."""
    conf = {"spark.sql.join.asofJoin.enabled": "true", "spark.sql.join.sortMergeAsOfJoin.enabled": "true"}
    with settings(executor.spark, conf):
        yield conf


@pytest.mark.parametrize("kind", ["", "left"])
def test_as_of(check, as_of, kind):
    text = f"""
        select l.id, l.k, r.n from {LEFT} l {kind} asof join {RIGHT} r
        match_condition (l.id >= r.n) on l.k = r.k"""
    assert "SortMergeAsOfJoin" in check(text, conf=as_of).plan
