{#-
  A stream: the model is what stands behind its name in CREATE STREAM. One that exists stays as it is, with its rows, also with
  --full-refresh: they may be nowhere else. Where the model says something else by now, there is a warning.
-#}
{% materialization stream, default %}
  {%- if millrace.is_there(this, "stream") -%}
    {%- do millrace.warn_if_changed(this, "stream", sql) -%}
  {%- endif -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement("main") %} create stream if not exists {{ this }} {{ sql }} {% endcall %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({"relations": [this.incorporate(type="table")]}) }}
{% endmaterialization %}
