"""Reports of a shop, as warehouses are asked for them: each has many shapes at once."""
# ruff: noqa: E501  (a query reads best on one line)

from typing import get_args

import pytest

from onager.protocol import onager_pb2 as pb
from onager.testing.layout import Layout
from tests.integration.planning.shop_tables import NAMES, write_shop
from tests.support.selection import IS_ALL, some
from tests.support.spark.one_executor import CUT, as_multiset, rows_of

QUERIES = {
    "customers who send back more than others of their town": """
        with refunds as (
          select r.customer_id, c.town, sum(r.refund) total from returned r join customers c using (customer_id)
          join days d using (day_id) where d.month_of_year = 2 group by all)
        select c.name, a.total from refunds a join customers c using (customer_id)
        where a.total > (select avg(total) * 1.2 from refunds b where a.town = b.town)
        order by a.total desc, c.name limit 20""",
    "weeks compared with the weeks two months later": """
        with weekly as (
          select d.week, s.shop_id, sum(case when d.weekday = 0 then s.price end) monday,
            sum(case when d.weekday = 5 then s.price end) saturday, count(*) n
          from (select day_id, shop_id, price from sold union all select day_id, 0, price from web_sold) s
          join days d using (day_id) group by d.week, s.shop_id)
        select a.week, a.shop_id, round(a.monday / b.monday, 2) m, round(a.saturday / b.saturday, 2) s, a.n - b.n
        from weekly a join weekly b on a.shop_id = b.shop_id and a.week = b.week - 8 order by 1, 2""",
    "sales by everything that items have": """
        select category, brand, grouping_id(category, brand) g, sum(quantity) q, count(distinct customer_id) buyers,
          rank() over (partition by grouping_id(category, brand) order by sum(quantity) desc, category, brand) place
        from sold join items using (item_id) group by rollup(category, brand) order by g, place limit 30""",
    "tickets that were sold in the shop, returned, and bought on the web": """
        select i.item, sum(s.quantity) sold, sum(r.quantity) returned, sum(w.quantity) web
        from sold s join returned r on s.customer_id = r.customer_id and s.item_id = r.item_id and s.ticket = r.ticket
        join web_sold w on r.customer_id = w.customer_id and r.item_id = w.item_id
        join items i on i.item_id = s.item_id group by i.item order by i.item""",
    "customers of the shops, of the web, of both": """
        with shop as (select distinct customer_id from sold where month = 1),
             web as (select distinct customer_id from web_sold join days using (day_id) where month_of_year = 1)
        select count(case when s.customer_id is not null and w.customer_id is null then 1 end) shop_only,
          count(case when s.customer_id is null then 1 end) web_only,
          count(case when s.customer_id is not null and w.customer_id is not null then 1 end) both
        from shop s full outer join web w on s.customer_id = w.customer_id""",
    "items sold above their category's mean in most towns": """
        select category, item, towns from (
          select i.category, i.item, count(distinct p.town) towns,
            dense_rank() over (partition by i.category order by count(distinct p.town) desc, i.item) r
          from sold s join items i on s.item_id = i.item_id join shops p on s.shop_id = p.shop_id
          where s.price > (select 1.1 * avg(price) from sold t join items j on t.item_id = j.item_id
                           where j.category = i.category)
          group by i.category, i.item) where r <= 3 order by category, r""",
    "customers that buy of a brand and never return it": """
        select c.customer_id, c.name, c.town from customers c
        where exists (select 1 from sold s join items i using (item_id)
                      where s.customer_id = c.customer_id and i.brand = 'brand 3')
          and not exists (select 1 from returned r join items i using (item_id)
                          where r.customer_id = c.customer_id and i.brand = 'brand 3')
          and (c.born is null or c.born not in (select born from customers where town = 'Bonn' and born is not null))
        order by 1""",
    "days above the running mean of the week before": """
        with daily as (select d.day, sum(s.price * s.quantity) total from sold s join days d using (day_id) group by d.day)
        select day, total, avg(total) over w before from daily
        window w as (order by day range between interval 7 days preceding and interval 1 day preceding)
        qualify total > 1.5 * avg(total) over w order by day""",
    "what sells together": """
        select a.item_id x, b.item_id y, count(*) n from sold a join sold b on a.ticket = b.ticket and a.item_id < b.item_id
        group by 1, 2 having count(*) > (select 1 + avg(n) from (
          select count(*) n from sold c join sold d on c.ticket = d.ticket and c.item_id < d.item_id group by c.item_id, d.item_id))
        order by n desc, x, y limit 25""",
    "profit by month, month before and share of the year": """
        select month, category, profit, lag(profit) over (partition by category order by month) before,
          round(profit / sum(profit) over (partition by category), 4) share
        from (select month, category, sum((price - cost) * quantity) profit from sold join items using (item_id)
              group by month, category) order by category, month""",
    "stock that moved in one half only": """
        (select item_id from sold where month in (1, 2) except select item_id from sold where month in (3, 4))
        union (select item_id from web_sold where day_id < 60 intersect select item_id from returned where day_id >= 60)
        order by item_id""",
    "buckets of prices, each with its own counts": """
        select * from (select count(*) n1, avg(price) a1, count(distinct price) d1 from sold where price between 0 and 20),
        (select count(*) n2, avg(price) a2, count(distinct price) d2 from sold where price between 20 and 50 and quantity > 5),
        (select count(*) n3, avg(price) a3, count(distinct item_id) d3 from sold where price > 50 or quantity = 1)""",
    "the best three customers of each shop, with what they bought": """
        with best as (
          select shop_id, customer_id, spent from (
            select shop_id, customer_id, sum(price * quantity) spent,
              row_number() over (partition by shop_id order by sum(price * quantity) desc, customer_id) r
            from sold where customer_id is not null group by shop_id, customer_id) where r <= 3)
        select p.shop, c.name, b.spent, t.items from best b join shops p using (shop_id) join customers c using (customer_id),
        lateral (select sort_array(collect_set(i.category)) items from sold s join items i using (item_id)
                 where s.customer_id = b.customer_id and s.shop_id = b.shop_id) t order by p.shop, b.spent desc""",
    "one month's sales of what a filter on items leaves": """
        select i.category, s.month, sum(s.price) from sold s join days d on s.day_id = d.day_id and s.month = d.month_of_year
        join items i on s.item_id = i.item_id where d.day between date'2023-02-10' and date'2023-03-05' and i.brand > 'brand 4'
        group by cube(i.category, s.month) order by 1, 2""",
}


@pytest.fixture(scope="module")
def shop(executor, tmp_path_factory):
    root = tmp_path_factory.mktemp("shop")
    write_shop(root)
    for name in NAMES:
        executor.spark.read.parquet(str(root / name)).createOrReplaceTempView(name)
    yield [pb.View(name=name, path=str(root / name), format="parquet") for name in NAMES]
    for name in NAMES:
        executor.spark.catalog.dropTempView(name)


LAYOUTS = get_args(Layout)
NO_BROADCASTS = {"spark.sql.autoBroadcastJoinThreshold": "-1"}


@pytest.mark.parametrize(("place", "text"), list(enumerate(some(QUERIES.values()))), ids=some(QUERIES))
def test_report(executor, shop, place, text):
    """Every other report is made without broadcasts, so that all of its joins go through exchanges.

    Each is laid out in one of the ways, as planned among them; in all of them with ``ONAGER_TESTS=all``.
    """
    outcome = executor.plan_sql(text, views=shop, conf=CUT | (NO_BROADCASTS if place % 2 else {}))
    expected = rows_of(executor.spark.sql(text).toArrow())
    assert expected, "a query that gives nothing tests nothing"
    for layout in LAYOUTS if IS_ALL else (LAYOUTS[place % len(LAYOUTS)],):
        got = executor.run(outcome, layout)
        assert as_multiset(got) == as_multiset(expected)
        if "order by" in text.rpartition(")")[2]:
            assert list(as_multiset(got)) == list(as_multiset(expected))
    assert len(outcome.stages) > 2
