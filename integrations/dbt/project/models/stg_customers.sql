{{ config(materialized='view') }}
select customer, name, lower(country) as country
from {{ source('raw', 'customers') }}
