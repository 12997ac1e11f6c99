"""Every type of column through every kind of exchange, and as a key."""

import pytest

from tests.integration.planning.types_of_columns import AS_TEXT, COLUMNS, SHOWN, carried
from tests.support.selection import some

AS_KEY = """
with t as (select id, {values} from range(0, 30, 1, 3))
select /*+ merge(b) */ {shown}, a.n, a.d, b.low
from (select {keys}, count(*) n, count(distinct id) d from t group by {keys}) a
join (select {keys}, min(id) low from t where id > 3 group by {keys}) b on {equal} order by {ordered}, low
"""
ALIKE = ["boolean", "double with oddities", "empty string", "collated string", "trimmed collation", "array"]
"""Types of whose values here some are equal: each is a key of its own. The others are keys by fives."""
OTHERS = [name for name in SHOWN if name not in ALIKE]
KEYS = some([name] for name in ALIKE) + some(OTHERS[i : i + 5] for i in range(0, len(OTHERS), 5))


def by_keys(expressions, shown="{}"):
    names = [f"v{i}" for i in range(len(expressions))]
    return AS_KEY.format(
        values=", ".join(f"if(id % 5 = 0, null, {e}) {name}" for e, name in zip(expressions, names, strict=True)),
        shown=", ".join(shown.format(f"a.{name}") for name in names),
        keys=", ".join(names),
        equal=" and ".join(f"a.{name} <=> b.{name}" for name in names),
        ordered=", ".join(f"a.{name}" for name in names),
    )


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS.keys())
def test_types_through_every_exchange(check, columns):
    check(carried(columns))


@pytest.mark.parametrize("names", KEYS, ids=[", ".join(names) for names in KEYS])
def test_types_as_keys(check, names):
    check(by_keys([SHOWN[name] for name in names]))


def test_intervals_of_months_as_keys(check):
    check(by_keys(list(AS_TEXT.values()), "cast({} as string)"))
