{{ config(materialized="sink") }}
FROM {{ ref("totals") }} WITH (connector = 'file', path = '{{ env_var("SHOP_OUT") }}', type = 'changelog') FORMAT PLAIN ENCODE JSON
