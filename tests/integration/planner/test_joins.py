"""Every type of join by every way of joining: with null keys, keys that repeat, and a condition beside the keys."""
# ruff: noqa: E501  (a query reads best on one line)

import pytest

EQUAL = "l.k = r.k and l.id + r.n > 5"
LESS = "l.id < r.n * 4"
TYPES = ("inner", "left", "right", "full", "left semi", "left anti")
SIDES = {
    "l": "(select id, if(id % 6 = 0, null, id % 5) k from range(0, 30, 1, 3))",
    "r": "(select id n, if(id % 4 = 0, null, id % 7) k from range(0, 14, 1, 2))",
}
PLAIN_MERGE = {"spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "0"}
"""Otherwise sides that turn out small are hashed after all."""

# (way, hint, types, condition, the operator that has to be in the plan)
WAYS = [
    ("broadcast right", "broadcast(r)", ("inner", "left", "left semi", "left anti"), EQUAL, "BroadcastHashJoin"),
    ("broadcast left", "broadcast(l)", ("inner", "right"), EQUAL, "BroadcastHashJoin"),
    ("merge", "merge(r)", TYPES, EQUAL, "SortMergeJoin"),
    ("hash right", "shuffle_hash(r)", TYPES, EQUAL, "ShuffledHashJoin"),
    ("hash left", "shuffle_hash(l)", ("inner", "left", "right", "full"), EQUAL, "ShuffledHashJoin"),
    ("nested loop, right", "broadcast(r)", TYPES, LESS, "BroadcastNestedLoopJoin"),
    ("nested loop, left", "broadcast(l)", TYPES, LESS, "BroadcastNestedLoopJoin"),
    ("cartesian", "shuffle_replicate_nl(r)", ("inner", "cross"), LESS, "CartesianProduct"),
    ("broadcast right, no condition", "broadcast(r)", TYPES, "true", "BroadcastNestedLoopJoin"),
]
CASES = [(way, hint, kind, on, operator) for way, hint, kinds, on, operator in WAYS for kind in kinds]


@pytest.mark.parametrize(
    ("hint", "kind", "on", "operator"), [case[1:] for case in CASES], ids=[f"{c[2]} {c[0]}" for c in CASES]
)
def test_join(check, hint, kind, on, operator):
    columns = "l.id, l.k" if kind in {"left semi", "left anti"} else "l.id, l.k, r.n, r.k"
    text = f"select /*+ {hint} */ {columns} from {SIDES['l']} l {kind} join {SIDES['r']} r on {on}"
    assert operator in check(text, conf=PLAIN_MERGE).plan


EXISTENCE = {
    "broadcast": ("broadcast(r)", "r.k = l.k", "BroadcastHashJoin"),
    "merge": ("merge(r)", "r.k = l.k", "SortMergeJoin"),
    "hash": ("shuffle_hash(r)", "r.k = l.k", "ShuffledHashJoin"),
    "nested loop": ("broadcast(r)", "r.n * 3 < l.id", "BroadcastNestedLoopJoin"),
}


@pytest.mark.parametrize(("hint", "on", "operator"), EXISTENCE.values(), ids=EXISTENCE.keys())
def test_exists_beside_another_condition(check, hint, on, operator):
    text = f"""
        select l.id from {SIDES["l"]} l
        where l.id % 7 = 0 or exists (select /*+ {hint} */ 1 from {SIDES["r"]} r where {on})"""
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
    for key, value in conf.items():
        executor.spark.conf.set(key, value)
    yield conf
    for key in conf:
        executor.spark.conf.unset(key)


@pytest.mark.parametrize("kind", ["", "left"])
def test_as_of(check, as_of, kind):
    text = f"""
        select l.id, l.k, r.n from {SIDES["l"]} l {kind} asof join {SIDES["r"]} r
        match_condition (l.id >= r.n) on l.k = r.k"""
    assert "SortMergeAsOfJoin" in check(text, conf=as_of).plan
