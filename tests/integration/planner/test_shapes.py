"""Every shape of plan that a query can have gives plain Spark's rows when it is cut."""
# ruff: noqa: E501  (a query reads best on one line)

import pytest

SHAPES = {
    "projection": "select id, amount * 2 from sales",
    "filter": "select * from sales where k = 3 and amount > 10",
    "one row": "select 1 as a, 'x' as b",
    "values": "select * from values (1, 'a'), (2, 'b'), (3, null) as t(x, y)",
    "aggregate": "select k, sum(amount), count(*), avg(price), max(name) from sales group by k",
    "global aggregate": "select count(*), sum(amount) from sales",
    "global aggregate of nothing": "select count(*), sum(k) from nothing",
    "aggregate of nothing": "select k, count(*) from nothing group by k",
    "distinct aggregates": "select k, count(distinct name), sum(distinct maybe), count(*) from sales group by k",
    "object aggregate": "select k, sort_array(collect_set(maybe)) from sales group by k",
    "percentile": "select k, percentile(amount, 0.5), approx_count_distinct(id) from sales group by k",
    "sort aggregate": "select k, max(struct(name, id)), max(name) from sales group by k",
    "distinct": "select distinct name, k from sales",
    "rollup": "select k, name, count(*) from sales group by rollup(k, name)",
    "cube": "select k, maybe, sum(amount) from sales group by cube(k, maybe)",
    "grouping sets": "select k, name, grouping(k), count(*) from sales group by grouping sets ((k), (name), ())",
    "pivot": "select * from (select k, maybe, amount from sales) pivot (sum(amount) for k in (1, 2, 3))",
    "having": "select k, count(*) c from sales group by k having c > 42",
    "broadcast join": "select s.id, g.label from sales s join groups g on s.k = g.k",
    "left join": "select /*+ broadcast(g) */ s.id, g.label from sales s left join groups g on s.id = g.k",
    "merge join": "select /*+ merge(g) */ s.id, g.label from sales s join groups g on s.k = g.k",
    "merge left": "select /*+ merge(g) */ s.id, g.label from sales s left join groups g on s.id = g.k",
    "merge right": "select /*+ merge(g) */ s.id, g.label from sales s right join groups g on s.k = g.k",
    "merge full": "select /*+ merge(g) */ s.id, g.label from sales s full join groups g on s.id = g.k + 290",
    "merge semi": "select /*+ merge(g) */ s.id from sales s left semi join groups g on s.id = g.k",
    "merge anti": "select /*+ merge(g) */ s.id from sales s left anti join groups g on s.id = g.k",
    "hash join": "select /*+ shuffle_hash(g) */ s.id, g.label from sales s join groups g on s.k = g.k",
    "hash left": "select /*+ shuffle_hash(g) */ s.id, g.label from sales s left join groups g on s.id = g.k",
    "hash full": "select /*+ shuffle_hash(g) */ s.id, g.label from sales s full join groups g on s.id = g.k + 290",
    "hash right": "select /*+ shuffle_hash(s) */ s.id, g.label from sales s right join groups g on s.k = g.k",
    "nested loop": "select s.id, g.k from sales s join groups g on s.id < g.k",
    "nested loop outer": "select s.id, g.k from sales s left join groups g on s.id < g.k",
    "nested loop unmatched builds": "select /*+ broadcast(g) */ s.id, g.k from sales s right join groups g on s.id > g.k + 285",
    "nested loop full": "select s.id, g.k from sales s full join groups g on s.id > g.k + 285",
    "cartesian": "select /*+ shuffle_replicate_nl(g) */ s.id, g.k from sales s, groups g where s.id + g.k < 30",
    "cross join": "select a.k, b.k from groups a cross join groups b",
    "self join": "select a.id, b.id from sales a join sales b on a.id = b.id + 1",
    "join of nothing": "select /*+ merge(n) */ s.id from sales s join nothing n on s.id = n.id",
    "left join of nothing": "select s.id, n.k from sales s left join nothing n on s.id = n.id",
    "null-aware anti join": "select id from sales where maybe not in (select k from groups where k < 3)",
    "union": "select id, k from sales union all select id, k from lines_csv union all select k, k from groups",
    "union of itself": "select k from groups union all select k from groups",
    "union of aggregates": "select k, count(*) from sales group by k union all select k, count(*) from lines_orc group by k",
    "join over unions": """
        select u.k, count(*) from (select k from sales union all select k from lines_json) u
        join (select distinct k from groups) g on u.k = g.k group by u.k""",
    "aggregate over co-partitioned unions": """
        select k, sum(c) from (select k, count(*) c from sales group by k union all
        select k, count(*) c from lines_csv group by k) group by k""",
    "intersect": "select k from sales intersect select k from groups",
    "intersect all": "select k from sales intersect all select k from lines_csv",
    "except": "select k from groups except select k from sales",
    "except all": "select k from sales except all select k from lines_csv",
    "scalar subquery": "select id from sales where amount > (select avg(amount) from sales)",
    "scalar subqueries": """
        select id, (select max(k) from groups) + (select count(*) from nothing) from sales
        where id < (select count(*) from groups)""",
    "nested scalar subqueries": "select id from sales where id < (select max(k) from groups where k < (select avg(k) from groups))",
    "subquery twice": """
        select (select max(amount) from sales) a, k from groups
        union all select (select max(amount) from sales), k from groups""",
    "correlated scalar": "select g.k, (select sum(amount) from sales s where s.k = g.k) from groups g",
    "in subquery": "select id from sales where k in (select k from groups where label like '%1')",
    "in subquery in projection": "select id, k in (select k from groups where k < 3) from sales",
    "exists": "select label from groups g where exists (select 1 from sales s where s.k = g.k)",
    "not exists": "select label from groups g where not exists (select 1 from sales s where s.k = g.k)",
    "exists or": "select k from groups g where k > 18 or exists (select 1 from sales s where s.k = g.k)",
    "lateral join": "select g.k, t.c from groups g, lateral (select count(*) c from sales s where s.k = g.k) t",
    "cte": "with a as (select k, sum(amount) v from sales group by k) select x.k, x.v - y.v from a x join a y on x.k = y.k + 1",
    "explode": "select id, v from sales lateral view explode(pair) as v",
    "posexplode outer": "select id, p, v from sales lateral view outer posexplode(pair) as p, v",
    "inline": "select inline(array(struct(1, 'a'), struct(2, 'b')))",
    "stack": "select stack(2, id, k, k, id) from sales",
    "range": "select id, id * 2 from range(0, 50, 3)",
    "range join": "select r.id, g.label from range(0, 50) r join groups g on r.id = g.k",
    "complex types": "select id, pair, s, m, array(s), map('y', pair) from sales",
    "struct keys": "select s, count(*) from sales group by s",
    "decimals": "select cast('12345678901234567890123456789012345678' as decimal(38, 0)) d, price * price p from sales",
    "timestamps": "select timestamp'2024-02-03 04:05:06.789' a, timestamp_ntz'2024-02-03 04:05:06' b, day from sales",
    "binary": "select k, cast(name as binary), sha2(name, 256) from sales",
    "day intervals": "select id, day - date'2024-01-01', interval '1 02:03:04' day to second from sales",
    "collation": "select name collate utf8_lcase n, count(*) from sales group by 1",
    "nulls": "select null, cast(null as int), maybe from sales",
    "duplicate columns": "select id, id, k as id from sales",
    "csv": "select k, count(*), sum(id) from lines_csv group by k",
    "json": "select k, count(*), sum(id) from lines_json group by k",
    "orc": "select k, count(*), sum(id) from lines_orc group by k",
    "text": "select value, length(value) from words_txt where value like '1%'",
    "partitioned": "select part, count(*), sum(id) from parts group by part",
    "partition pruning": "select id, part from parts where part in (1, 3) and id > 10",
    "partition only": "select distinct part from parts",
    "partition by subquery": "select id, part from parts where part = (select max(part) from parts)",
    "partition by join": "select p.id, g.label from parts p join groups g on p.part = g.k where g.label = 'group 2'",
    "no column": "select from_k.n from (select count(*) n from (select 1 from sales)) from_k",
    "repartition": "select /*+ repartition(4) */ id, k from sales",
    "repartition by": "select /*+ repartition(4, k) */ id, k from sales",
    "rebalance": "select /*+ rebalance(k) */ id, k from sales",
    "coalesce": "select /*+ coalesce(1) */ id from sales",
    "coalesce to two": "select /*+ coalesce(2) */ id from sales",
    "sample": "select count(*) > 0 from sales tablesample (50 percent) repeatable (7)",
    "session window": "select session_window(cast(day as timestamp), '1 day') w, count(*) from sales group by 1",
    "higher-order functions": "select transform(pair, x -> x + k), filter(pair, x -> x > 5) from sales",
    "pipe syntax": "from sales |> where k = 1 |> aggregate sum(amount) as a group by name",
    "variant": "select variant_get(parse_json(concat('{\"a\":', id, '}')), '$.a', 'int') from sales",
    "sequence": "select k, sequence(1, k) from groups where k > 0",
    "nested loop semi building left": "select /*+ broadcast(g) */ g.k from groups g left semi join sales s on g.k > s.id",
    "nested loop anti building left": "select /*+ broadcast(g) */ g.k from groups g left anti join sales s on g.k > s.id",
    "aggregate over a collecting join": """
        select k, count(*) from (select /*+ broadcast(g) */ g.k from sales s right join groups g on s.id > g.k + 285)
        group by k""",
}

ORDERED = {
    "order by": "select id, name from sales order by name, id desc",
    "order by one": "select k, sum(amount) s from sales group by k order by s desc",
    "order by nulls": "select maybe, id from sales order by maybe nulls last, id",
    "top": "select id, amount from sales order by amount desc limit 7",
    "top with offset": "select id from sales order by id limit 7 offset 5",
    "top beyond the end": "select k from groups order by k limit 1000 offset 15",
    "top of nothing": "select id from nothing order by id limit 3",
    "top of projections": "select concat(name, k), -id from sales order by -id limit 4",
    "top of one partition": "select * from (select /*+ coalesce(1) */ id from sales) order by id limit 3",
    "sort within a union": "(select k from groups order by k limit 3) union all (select 100 + k from groups order by k limit 2)",
    "limit in subquery": "select count(*) from (select id from sales limit 17)",
    "offset of the result": "select id from sales order by id offset 290",
    "offset alone": "select count(*) from (select k from groups order by k offset 4)",
    "rank": "select id, rank() over (partition by k order by amount desc) r from sales order by id",
    "window sums": "select id, sum(amount) over (partition by k order by id rows 2 preceding) from sales order by id",
    "window over everything": "select id, row_number() over (order by amount desc) from sales order by id",
    "window limit": "select * from (select id, k, row_number() over (partition by k order by id) r from sales) where r <= 2 order by 1",
    "lead and lag": "select id, lag(amount) over (partition by k order by id), ntile(3) over (order by id) from sales order by id",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_shape(check, text):
    check(text)


@pytest.mark.parametrize("text", ORDERED.values(), ids=ORDERED.keys())
def test_ordered_shape(check, text):
    check(text, ordered=True)
