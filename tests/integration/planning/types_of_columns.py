"""Every type of column, and queries that carry them by hash, in turn, into one partition, and as a broadcast."""
# ruff: noqa: E501  (a query reads best on one line)

# Each expression is of `id`; every fifth value is null.
SHOWN = {
    "boolean": "id % 3 = 0",
    "tinyint": "cast(id as tinyint)",
    "smallint": "cast(-id as smallint)",
    "int": "cast(id * 1000003 as int)",
    "bigint": "id * 9007199254740993",
    "float": "cast(id / 3 as float)",
    "double": "id / 7",
    "double with oddities": "case id % 4 when 0 then double('NaN') when 1 then -0.0D when 2 then double('inf') else 0.5D end",
    "decimal(9,2)": "cast(id / 4 as decimal(9, 2))",
    "decimal(18,6)": "cast(-id / 9 as decimal(18, 6))",
    "decimal(38,0)": "cast(id as decimal(38, 0)) * 1000000000000000000000000000000000003",
    "decimal(38,37)": "cast(id / 100 as decimal(38, 37))",
    "string": "concat('größe ', id)",
    "long string": "repeat(cast(id as string), 1000)",
    "empty string": "if(id % 2 = 0, '', ' ')",
    "char": "cast(id as char(5))",
    "varchar": "cast(id as varchar(5))",
    "collated string": "if(id % 2 = 0, 'Straße', 'STRASSE') collate unicode_ci",
    "trimmed collation": "concat('A', repeat(' ', cast(id % 3 as int))) collate utf8_lcase_rtrim",
    "binary": "cast(concat('b', id) as binary)",
    "date": "date_add(date'1582-10-01', cast(id as int))",
    "timestamp": "timestamp'1969-12-31 23:59:59.999999' + make_dt_interval(cast(id as int))",
    "timestamp without zone": "timestamp_ntz'2024-03-31 01:30:00' + make_dt_interval(0, cast(id as int))",
    "day interval": "make_dt_interval(cast(id as int), 1, 2, 3.5)",
    "hour interval": "cast(make_dt_interval(0, cast(id as int)) as interval hour to minute)",
    "array": "sequence(0, id % 4)",
    "array of nulls": "array(id, null)",
    "struct": "struct(nullif(id, 7) as a, if(id = 9, null, struct(cast(nullif(id, 8) as string) as c)) as b)",
    "array of structs": "array(struct(nullif(id, 7) as a, nullif('x', 'y') as b), null)",
    "deep": "array(array(struct(array(id) as a)))",
}
"""Types that Arrow shows alike on both sides, and that can be keys."""

AS_TEXT = {
    "year-month interval": "make_ym_interval(cast(id as int), 3)",
    "years": "cast(make_ym_interval(cast(id as int)) as interval year)",
}
"""Types that can be keys, and are compared as text: Arrow has no place for them."""

NO_KEYS = {
    "calendar interval": ("make_interval(1, cast(id as int), 0, 3)", "cast({} as string)"),
    "array of intervals": ("array(make_ym_interval(1, cast(id as int)))", "cast({}[0] as string)"),
    "map": ("map('a', id, 'b', null)", "{}"),
    "map of arrays": ("map(id, array('x', cast(id as string)))", "{}"),
    "nested map": ("map('outer', map(id, struct(id as a)))", "{}"),
    "variant": ("parse_json(concat('{\"a\": [1, ', id, ', null]}'))", "to_json({})"),
    "variant in a struct": ("struct(to_variant_object(struct(id as a)) as v)", "to_json({})"),
    "null": ("null", "{}"),
    "empty array": ("filter(array(id), x -> false)", "{}"),
}
"""Types that cannot be keys, and what shows them."""

CARRIED = """
with t as (select id, {values} from range(0, 30, 1, 3))
select /*+ broadcast(b) */ a.id, {a}, {b}
from (select /*+ repartition(3, id) */ * from t) a left join (select /*+ repartition(2) */ * from t) b on a.id = b.id
union all select id, {t}, {t} from (select /*+ coalesce(1) */ * from (select /*+ repartition(2) */ * from t)) t
"""


def carried(columns: dict[str, tuple[str, str]]) -> str:
    """Return a query that carries *columns*, each an expression of `id` and what shows its value; every fifth is null."""
    values = ", ".join(f"if(id % 5 = 0, null, {value}) v{i}" for i, (value, _) in enumerate(columns.values()))
    shown = {
        table: ", ".join(how.format(f"{table}.v{i}") for i, (_, how) in enumerate(columns.values())) for table in "abt"
    }
    return CARRIED.format(values=values, **shown)


COLUMNS = {
    "shown as they are": {name: (value, "{}") for name, value in SHOWN.items()},
    "shown otherwise": {name: (value, "cast({} as string)") for name, value in AS_TEXT.items()} | NO_KEYS,
}
"""Columns for `carried`."""
