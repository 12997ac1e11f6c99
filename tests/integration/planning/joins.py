"""Every type of join by every way of joining: with null keys, keys that repeat, and a condition beside the keys."""

EQUAL = "l.k = r.k and l.id + r.n > 5"
LESS = "l.id < r.n * 4"
TYPES = ("inner", "left", "right", "full", "left semi", "left anti")
LEFT = "(select id, if(id % 6 = 0, null, id % 5) k from range(0, 30, 1, 3))"
RIGHT = "(select id n, if(id % 4 = 0, null, id % 7) k from range(0, 14, 1, 2))"

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
OPERATORS = frozenset(way[-1] for way in WAYS)


def joined(hint: str, types: tuple[str, ...], condition: str) -> str:
    """Return one query of a join of each type, each row with the type's name."""
    return " union all ".join(_join(hint, kind, condition) for kind in types)


def _join(hint: str, kind: str, condition: str) -> str:
    right = "null, null" if kind in {"left semi", "left anti"} else "r.n, r.k"
    return f"""
        select /*+ {hint} */ '{kind}' kind, l.id, l.k, {right}
        from {LEFT} l {kind} join {RIGHT} r on {condition}"""
