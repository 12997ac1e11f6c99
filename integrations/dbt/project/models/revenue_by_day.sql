{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by=['day']) }}
select count(*) as orders, sum(price) as revenue, day
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where day >= (select max(day) from {{ this }})
{% endif %}
group by day
