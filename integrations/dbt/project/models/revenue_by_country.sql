select countries.name as country, countries.region, count(*) as orders, sum(orders.price) as revenue
from {{ ref('stg_orders') }} as orders
join {{ ref('stg_customers') }} as customers on customers.customer = orders.customer
join {{ ref('countries') }} as countries on countries.code = customers.country
group by countries.name, countries.region
