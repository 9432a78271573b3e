{#-
  A materialized view that is always right: nothing is refreshed. It is filled when it is made, and again only when its query is another
  (comments and spaces are not a part of it) or with --full-refresh. It can be read meanwhile, and what reads it stays.
-#}
{% materialization millrace_view, default %}
  {%- set before = millrace.definition(this) -%}
  {%- set is_same = before is not none and millrace.meaning(before) == millrace.meaning(sql) and not should_full_refresh() -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% if is_same %}
    {% call statement("main") %} select 'as it was' {% endcall %}
  {% else %}
    {{ millrace.outside_of_transaction("create or replace materialized view " ~ this ~ " as " ~ sql) }}
  {% endif %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({"relations": [this.incorporate(type="materialized_view")]}) }}
{% endmaterialization %}
