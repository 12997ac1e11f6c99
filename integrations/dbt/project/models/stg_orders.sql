{{ config(materialized='view') }}
select id, customer, cast(day as date) as day, price
from {{ source('raw', 'orders') }}
where price is not null
