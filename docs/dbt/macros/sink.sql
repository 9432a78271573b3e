{#-
  A sink: the model is what stands behind its name in CREATE SINK, `FROM {{ ref('..') }} WITH (..)`. One that exists goes on, also with
  --full-refresh: what it has delivered is not millrace's to take back. Where the model says something else by now, there is a warning.
-#}
{% materialization sink, default %}
  {%- if millrace.is_there(this, "sink") -%}
    {%- do millrace.warn_if_changed(this, "sink", sql) -%}
  {%- endif -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {{ millrace.outside_of_transaction("create sink if not exists " ~ this ~ " " ~ sql) }}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({"relations": []}) }}
{% endmaterialization %}
