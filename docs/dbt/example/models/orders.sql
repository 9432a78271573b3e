{{ config(materialized="stream") }}
(customer INT, amount INT)
