{{ config(materialized="millrace_view") }}
SELECT customer, count(*) AS orders, sum(amount) AS total FROM {{ ref("orders") }} GROUP BY customer
