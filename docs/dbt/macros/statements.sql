{#- A statement that acts at once, and cannot be taken back: not in the transaction that dbt has open. -#}
{% macro outside_of_transaction(text) %}
  {% call statement("before") %} commit {% endcall %}
  {% call statement("main") %} {{ text }} {% endcall %}
  {% call statement("after") %} begin {% endcall %}
{% endmacro %}

{#- Whether there is such a relation; one of another kind is an error, and is not touched. -#}
{% macro is_there(relation, kind) %}
  {%- set found = run_query(
    "select kind from mr_catalog.relations where schema = '" ~ relation.schema ~ "' and name = '" ~ relation.identifier ~ "'"
  ) -%}
  {%- for row in found.rows if row[0] != kind -%}
    {{ exceptions.raise_compiler_error(relation ~ " is a " ~ row[0] ~ ", no " ~ kind ~ ": drop it, or choose another name") }}
  {%- endfor -%}
  {{ return(found.rows | length > 0) }}
{% endmacro %}

{#- The query of a materialized view, as it was written; none: there is no such view. -#}
{% macro definition(relation) %}
  {%- if not millrace.is_there(relation, "materialized view") -%} {{ return(none) }} {%- endif -%}
  {%- set found = run_query(
    "select definition from pg_matviews where schemaname = '" ~ relation.schema ~ "' and matviewname = '" ~ relation.identifier ~ "'"
  ) -%}
  {{ return(found.rows[0][0].strip().rstrip(";").strip()) }}
{% endmacro %}
