"""More shapes of queries: grouping, windows, subqueries, set operations, rows made of rows, limits, files' own columns."""
# ruff: noqa: E501  (a query reads best on one line)

import pytest

AGGREGATES = {
    "rollup with grouping ids": "select k, maybe, grouping_id(), count(*) from sales group by rollup(k, maybe) having count(*) > 3",
    "partial rollup": "select k, maybe, day, sum(price) from sales group by k, rollup(maybe, day)",
    "cube with distinct": "select k, maybe, count(distinct name), sum(distinct price) from sales group by cube(k, maybe)",
    "two grouping sets": "select k, name, max(amount) from sales group by grouping sets ((k, name), (k)), grouping sets ((), (name))",
    "grouping by all": "select k, maybe, count(*) from sales group by all",
    "grouping by expressions": "select id % 3 + k, upper(name), avg(id) from sales group by id % 3 + k, upper(name)",
    "distinct aggregates over several columns": "select count(distinct k, name), count(distinct day), avg(distinct amount) from sales",
    "filtered aggregates": "select k, count(*) filter (where id % 2 = 0), sum(distinct maybe) filter (where maybe > 2) from sales group by k",
    "distinct aggregates by group, with others": "select k, count(distinct name), count(distinct maybe), min(id), sum(amount) from sales group by k",
    "statistics": "select k, round(stddev(amount), 6), round(corr(id, amount), 6), var_pop(id), bit_xor(id), bool_or(maybe > 3) from sales group by k",
    "regressions": "select k, round(regr_slope(amount, id), 6), regr_count(amount, maybe) from sales group by k",
    "extremes by another column": "select k, max_by(name, id), min_by(struct(name, id), id) from sales group by k",
    "percentiles": "select k, percentile_approx(id, array(0.1, 0.9), 10000), median(amount), mode(k) from sales group by k",
    "ordered set": "select k, percentile_cont(0.25) within group (order by amount desc), listagg(name, '-') within group (order by name) from sales group by k",
    "sketch": "select k, hll_sketch_estimate(hll_sketch_agg(id)) from sales group by k",
    "bitmaps and histograms": "select k, bitmap_count(bitmap_construct_agg(id)), size(histogram_numeric(amount, 3)) from sales group by k",
    "any, every, count if": "select k, any(id > 290), every(id > 3), count_if(maybe is null) from sales group by k",
    "sums of large decimals": "select k, sum(cast(price as decimal(38, 2)) * 100000000000000), avg(cast(id as decimal(30, 8))) from sales group by k",
    "aggregate of an aggregate": "select c, count(*) from (select k, maybe, count(*) c from sales group by k, maybe) group by c",
    "maps from aggregates": "select k, map_keys(map_from_entries(array_sort(collect_set(struct(maybe, 1))))) from sales where maybe is not null group by k",
    "grouping by nothing": "select count(*) from sales group by grouping sets ((), (k), ())",
    "distinct of everything": "select distinct * from (select k, maybe, s.b > '2' from sales)",
    "pivot on two": "select * from (select k % 2 p, maybe m, amount from sales) pivot (sum(amount) s, count(*) c for (p, m) in ((0, 1) a, (1, 2) b))",
    "unpivot": "select * from (select id, k, maybe from sales) unpivot include nulls (v for c in (k, maybe))",
    "sliding window of time": "select window(cast(day as timestamp), '10 days', '5 days').start w, count(*) from sales group by 1",
    "session windows by key": "select k, session_window(cast(day as timestamp), '36 hours').end w, count(*), sum(amount) from sales group by 1, 2",
    "sampled by a hash": "select count(*) from sales where pmod(hash(id, name), 3) = 1",
}

WINDOWS = {
    "range frame": "select id, sum(id) over (partition by k order by amount range between 30 preceding and 15 following) from sales order by id",
    "interval frame": "select id, count(*) over (partition by k order by day range interval 7 days preceding) from sales order by id",
    "frames of one query": "select id, min(id) over w, max(id) over (partition by k order by id rows between 1 preceding and 1 following), first_value(maybe) ignore nulls over w from sales window w as (partition by k order by id) order by id",
    "several partitionings": "select id, rank() over (partition by k order by id), dense_rank() over (partition by maybe order by id), percent_rank() over (order by id) from sales order by id",
    "cumulative distribution": "select id, cume_dist() over (partition by k order by id), nth_value(id, 2) over (partition by k order by id) from sales order by id",
    "lead with default": "select id, lead(id, 2, -1) over (partition by maybe order by id desc) from sales order by id",
    "window over an aggregate": "select k, sum(sum(amount)) over (order by k), rank() over (order by count(*) desc, k) from sales group by k order by k",
    "windows with a limit": "select * from (select id, maybe, rank() over (partition by maybe order by amount desc) r from sales) where r < 4 order by id",
    "dense rank with a limit": "select * from (select id, k, dense_rank() over (partition by k order by day, id) r from sales) where r = 2 order by id",
    "limited window over everything": "select * from (select id, row_number() over (order by amount desc, id) r from sales) where r <= 5 order by r",
    "qualify": "select id, k from sales qualify row_number() over (partition by k order by id desc) = 1 order by id",
    "window by an expression": "select id, avg(id) over (partition by id % 4, name order by id) from sales order by id",
    "window of distinct frames": "select id, collect_list(maybe) over (partition by k order by id rows 2 preceding) from sales order by id",
}

SUBQUERIES = {
    "scalar in a projection, twice": "select id, (select max(k) from groups) a, (select max(k) from groups) b from sales where id < 7",
    "scalar in an aggregate": "select k, sum(amount - (select avg(amount) from sales)) from sales group by k",
    "scalar of no rows": "select id, (select k from nothing) from sales where id < 4",
    "scalar in having": "select k, count(*) c from sales group by k having c > (select avg(c) from (select count(*) c from sales group by name))",
    "scalar in order by": "select k from groups order by abs(k - (select avg(k) from groups)), k",
    "scalar in a join condition": "select s.id, g.label from sales s join groups g on s.k = g.k and s.id > (select max(k) * 10 from groups)",
    "scalar in a window": "select id, sum(id) over (partition by k order by id) + (select min(id) from sales) from sales",
    "correlated in a filter": "select id from sales a where amount > (select avg(amount) from sales b where b.k = a.k)",
    "correlated with two keys": "select id from sales a where id = (select max(id) from sales b where b.k = a.k and b.maybe = a.maybe)",
    "correlated count": "select g.k, (select count(*) from sales s where s.k = g.k and s.id > 250) from groups g",
    "correlated by inequality": "select g.k from groups g where exists (select 1 from sales s where s.id < g.k and s.k > g.k - 5)",
    "correlated with a limit": "select g.k, (select s.id from sales s where s.k = g.k order by s.id limit 1) from groups g",
    "in with several columns": "select id from sales where (k, maybe) in (select k, maybe from sales where id < 9)",
    "not in without nulls": "select id from sales where id not in (select k from groups)",
    "not in with nulls": "select k from groups where k not in (select maybe from sales)",
    "not in by two columns": "select id from sales where (k, id) not in (select maybe, id from sales where maybe is not null)",
    "in or in": "select id from sales where k in (select k from groups where k < 2) or maybe in (select k from groups where k = 4)",
    "exists and not exists": "select k from groups g where exists (select 1 from sales s where s.k = g.k) and not exists (select 1 from sales s where s.maybe = g.k)",
    "exists without correlation": "select k from groups where exists (select 1 from sales where id > 298)",
    "a subquery's subquery, correlated": "select k from groups g where k < (select count(*) from sales s where s.k = g.k and s.id > (select avg(id) from sales))",
    "lateral with a join": "select g.k, t.id from groups g left join lateral (select id from sales s where s.k = g.k order by id desc limit 2) t",
    "lateral of a lateral": "select g.k, a.v, b.w from groups g, lateral (select g.k + 1 v) a, lateral (select a.v * 2 w) b",
    "lateral explode": "select id, e.* from sales, lateral explode(array(k, maybe)) e where id < 9",
    "lateral view of a lateral view": "select id, a, b from sales lateral view explode(pair) x as a lateral view explode(array(a, k)) y as b where id < 9",
    "outer lateral view of nothing": "select id, a from sales lateral view outer explode(if(id % 2 = 0, pair, null)) as a",
    "posexplode of a map": "select id, e.* from sales lateral view posexplode(m) e as pos, key, value",
    "json tuple": "select id, a, b from sales lateral view json_tuple(to_json(struct(k as a, name as b)), 'a', 'b') as a, b where id < 9",
    "variant explode": "select id, v.pos, to_json(v.value) from sales, lateral variant_explode(parse_json(to_json(pair))) v where id < 9",
    "cte used three times": "with a as (select k, sum(id) v from sales group by k) select * from a union all select k, v from a where v > 9 union all select max(k), max(v) from a",
    "cte in a cte": "with a as (select k, count(*) c from sales group by k), b as (select a.*, c * 2 d from a) select b.k, a.c from a join b on a.c * 2 = b.d",
    "cte with rand": "with a as (select id, rand(3) r from range(20)) select count(*) from a x join a y on x.id = y.id and x.r = y.r",
    "reused exchange": "select /*+ merge(y) */ x.k, y.n from (select k, count(*) n from sales group by k) x join (select k, count(*) n from sales group by k) y on x.n = y.n",
    "reused broadcast": "select /*+ broadcast(g, h) */ s.id from sales s join groups g on s.k = g.k join groups h on s.maybe = h.k",
    "reused subquery": "select id from sales where id > (select avg(id) from sales) and amount > (select avg(id) from sales)",
}

SETS = {
    "union distinct": "select k from sales union select k from groups union select maybe from sales",
    "unions of unions": "(select k from groups union all select k from sales) union all (select id from nothing union all select k from lines_json)",
    "intersect of three": "select k from sales intersect select k from groups intersect select maybe from sales",
    "except with duplicates": "select maybe from sales except all select k from groups",
    "except of nulls": "select maybe from sales except select null",
    "intersect over tuples": "select k, maybe from sales where id < 200 intersect select k, maybe from sales where id > 100",
    "minus and union": "(select k from groups minus select k from sales) union all select max(k) from groups",
    "a join of set operations": "select a.k from (select k from sales intersect select k from groups) a join (select k from groups except select 3) b on a.k = b.k",
    "aggregate over a union of files": "select k, count(*) from (select k from lines_csv union all select k from lines_orc union all select k from lines_json) group by k",
    "window over a union": "select k, row_number() over (partition by k order by id) r from (select id, k from lines_csv union all select id + 1000, k from lines_orc)",
    "union of a range and rows": "select id from range(5) union all values (10), (11)",
    "union with nothing": "select id, k from nothing union all select id, k from lines_csv union all select id, k from nothing",
}

ROWS = {
    "no columns": "select count(*) from (select from_unixtime(0) from sales where id < 5)",
    "one column of nothing": "select 1 from nothing",
    "a range in steps": "select * from range(-10, 10, 7)",
    "a range downwards": "select * from range(10, 0, -3)",
    "an empty range": "select * from range(5, 5)",
    "a long range": "select count(*), sum(id) from range(0, 100000, 1, 7)",
    "values joined": "select v.b, s.id from values (1, 'x'), (2, 'y'), (null, 'z') as v(a, b) left join sales s on s.id = v.a",
    "values of types": "select * from values (1Y, 2S, 3L, 1.5D, 1.5BD, 'a', X'01', date'2024-01-01', true), (null, null, null, null, null, null, null, null, null)",
    "generators of rows": "select stack(3, id, k, k, id, 0L, 0L) from sales where id < 5",
    "inline outer": "select id, inline_outer(if(id % 2 = 0, array(struct(id, k)), null)) from sales where id < 9",
    "nested lambdas": "select aggregate(transform(pair, x -> x * k), 0L, (a, x) -> a + x), exists(pair, x -> x % 5 = 0), zip_with(pair, reverse(pair), (a, b) -> a - b) from sales",
    "maps changed": "select map_filter(m, (k2, v) -> v > 5), transform_values(m, (a, v) -> v + id), map_concat(m, map('z', id)) from sales",
    "structs changed": "select s.a, struct(s.*, k) t, named_struct('x', s, 'y', array(s)).y[0].b from sales",
    "json there and back": "select from_json(to_json(struct(id, pair, m)), 'id long, pair array<long>, m map<string, long>') from sales",
    "csv there": "select to_csv(struct(id, name, price)) from sales where id < 9",
    "variants": "select variant_get(v, '$.a[1]', 'int'), schema_of_variant(v), is_variant_null(v:b) from (select parse_json(concat('{\"a\":[1,', id, '],\"b\":null}')) v from sales)",
    "time zones": "select from_utc_timestamp(cast(day as timestamp), 'Asia/Tokyo'), cast(day as timestamp_ntz) + make_dt_interval(id), convert_timezone('UTC', 'Europe/Paris', cast(day as timestamp_ntz)) from sales",
    "intervals added": "select day + make_ym_interval(0, k), cast(day as timestamp) - timestamp'2023-12-31', extract(day from interval '3 04:05:06' day to second) from sales",
    "decimals of 38 digits": "select cast(id as decimal(38, 18)) / 7, cast('9.99e37' as decimal(38, 0)) - id, price * cast(3 as decimal(20, 10)) from sales",
    "binary": "select base64(cast(name as binary)), unhex('FF'), cast(name as binary) from sales where id < 20",
    "collations compared": "select a.name, count(*) from (select upper(name) collate utf8_lcase name from sales) a join (select name collate utf8_lcase name from sales) b on a.name = b.name group by 1",
    "collated order": "select distinct name collate unicode_ci n from sales order by n desc",
    "strings": "select regexp_extract_all(name, '[0-9]', 0), split(name, ' '), levenshtein(name, 'name 5'), format_string('%05d', id) from sales",
    "case and coalesce": "select case when k = 1 then 'a' when k > 3 then name end, coalesce(maybe, id), nullif(k, 3), nvl2(maybe, 1, 0) from sales",
    "columns of one name": "select a.id, b.id, a.k id from sales a join sales b on a.id = b.id where a.id < 9",
    "many columns": "select " + ", ".join(f"id + {n} as c{n}" for n in range(150)) + " from sales where id < 9",
    "a case of many branches": "select case "
    + " ".join(f"when id = {n} then {n * 7}" for n in range(200))
    + " end from sales",
    "an in of many": "select id from sales where id in (" + ",".join(str(n) for n in range(0, 600, 3)) + ")",
    "partitions and values": "select part, id, part + id from parts where id % 7 = 0",
    "partitions only": "select part, count(*) from parts where part > 0 group by part having count(*) > 1",
    "no files left": "select count(*), max(id) from parts where part = 17",
    "sorted within": "select id from (select /*+ repartition(2, k) */ * from sales sort by id) where id % 50 = 0",
    "distribute and cluster by": "select k, count(*) from (select * from sales cluster by k) group by k",
    "rebalanced": "select k, count(*) from (select /*+ rebalance(3, k) */ * from sales) group by k",
    "repartitioned by an expression": "select id from (select * from sales distribute by id % 5, name) where k = 2",
    "coalesced after an exchange": "select /*+ coalesce(2) */ k, count(*) from sales group by k",
    "tablesample of rows": "select count(*) from (select * from sales tablesample (13 rows))",
    "identifiers and parameters": "select identifier('k') from identifier('groups') where k < 3",
    "pipes": "from sales |> extend id % 3 as third |> where third > 0 |> aggregate count(*) as c group by third |> order by third |> limit 1",
    "scripts": "select transform(id, name) using 'cat' as (a int, b string) from sales where id < 50",
    "scripts after an exchange": "select transform(k, c) using 'sort' as (k, c) from (select k, count(*) c from sales group by k)",
}

ORDERED = {
    "limit of a sort of an aggregate": "select name, sum(amount) a from sales group by name order by a desc, name limit 3",
    "offset of a top": "select id from sales order by amount limit 5 offset 290",
    "offset beyond the end": "select id from sales order by id limit 5 offset 1000",
    "limit zero": "select id from sales order by id limit 0",
    "limit all": "select k from groups order by k limit all",
    "top in a subquery": "select sum(id) from (select id from sales order by amount desc limit 10)",
    "top of a union": "select * from (select k from groups union all select id from sales) order by k desc limit 9",
    "top of a join": "select s.id, g.label from sales s join groups g on s.k = g.k order by s.id desc limit 6",
    "tops joined": "select a.id from (select id from sales order by id desc limit 20) a join (select id from sales order by id desc limit 5 offset 3) b on a.id = b.id order by 1",
    "sort of nulls and oddities": "select v from (select case id % 4 when 0 then null when 1 then double('NaN') when 2 then -0.0D else id end v, id from range(0, 20, 1, 3)) order by v nulls last, id",
    "sort by a struct": "select s, id from sales order by s desc limit 12",
    "sort by an array": "select pair from sales order by pair desc limit 12",
    "sort by a collation": "select id, if(id % 2 = 0, upper(name), name) collate utf8_lcase n from sales order by n, id",
    "sort by binary": "select cast(name as binary) b, id from sales order by b, id desc limit 15",
    "sort by an expression that is not shown": "select id from sales order by -amount, name",
    "sort, limit, sort": "select * from (select id, k from sales order by id desc limit 30) order by k, id",
}

TABLES = [AGGREGATES, SUBQUERIES, SETS, ROWS]
ALL = {name: text for table in TABLES for name, text in table.items()}
IN_ORDER = WINDOWS | ORDERED


@pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
def test_shape(check, text):
    assert not check(text).HasField("fused_output"), "it runs in pieces"


@pytest.mark.parametrize("text", IN_ORDER.values(), ids=IN_ORDER.keys())
def test_ordered_shape(check, text):
    assert not check(text, ordered=True).HasField("fused_output")
