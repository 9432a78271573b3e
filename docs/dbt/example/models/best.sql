{{ config(materialized="view") }}
SELECT customer, total FROM {{ ref("totals") }} ORDER BY total DESC LIMIT 3
