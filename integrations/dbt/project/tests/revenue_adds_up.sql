-- The revenue of all countries is that of all days.
select by_country.revenue as of_countries, by_day.revenue as of_days
from (select sum(revenue) as revenue from {{ ref('revenue_by_country') }}) as by_country
cross join (select sum(revenue) as revenue from {{ ref('revenue_by_day') }}) as by_day
where by_country.revenue <> by_day.revenue
