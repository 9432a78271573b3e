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

{#- What a text of SQL says: its words, texts and signs, without comments and without the spaces between them. -#}
{% macro meaning(text) %}
  {%- set strings = "[eE]'(?:[^'\\\\]|\\\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\\$(\\w*)\\$.*?\\$\\2\\$" -%}
  {%- set comments = "--[^\\n]*|/\\*.*?\\*/" -%}
  {%- set parts = modules.re.findall("(?s)(" ~ strings ~ ")|" ~ comments ~ "|([^\\s'\"$/(),;-]+|\\S)", text) -%}
  {%- set said = [] -%}
  {%- for part in parts if part[0] or part[2] -%}
    {%- do said.append(part[0] or part[2] | lower) -%}
  {%- endfor -%}
  {%- if said and said[-1] == ";" -%} {%- do said.pop() -%} {%- endif -%}
  {{ return(said) }}
{% endmacro %}

{#- The same with each type under the name that the server gives it. -#}
{% macro meaning_of_columns(text) %}
  {%- set names = {
    "int": "integer", "int4": "integer", "int8": "bigint", "int2": "smallint", "bool": "boolean", "float8": "double precision",
    "float4": "real", "decimal": "numeric", "varchar": "character varying", "timestamptz": "timestamp with time zone",
  } -%}
  {%- set said = [] -%}
  {%- for word in millrace.meaning(text) -%} {%- do said.extend(names[word].split(" ") if word in names else [word]) -%} {%- endfor -%}
  {{ return(said) }}
{% endmacro %}

{#- Warns if a stream or sink that exists is not what its model says: it is not made again, and ALTER is not dbt's to guess. -#}
{% macro warn_if_changed(relation, kind, model_text) %}
  {%- set found = run_query("show create " ~ kind ~ " " ~ relation).rows[0][1] -%}
  {%- set made = millrace.meaning_of_columns(found) -%}
  {%- set wanted = millrace.meaning_of_columns(model_text) -%}
  {%- set name = made[: made | length - wanted | length] -%}
  {%- set is_same = made[name | length :] == wanted and "(" not in name and "with" not in name and "from" not in name -%}
  {#- What is secret is not shown, and cannot be compared. -#}
  {%- if not is_same and "***" not in found -%}
    {%- do exceptions.warn(
      "the " ~ kind ~ " " ~ relation ~ " is not what its model says, and stays as it is. It was made by:\n" ~ found
      ~ "\nBring it there with ALTER " ~ kind | upper ~ ", or drop it, with what reads it, and run the model again."
    ) -%}
  {%- endif -%}
{% endmacro %}

{#- The query of a materialized view, as it was written; none: there is no such view. -#}
{% macro definition(relation) %}
  {%- if not millrace.is_there(relation, "materialized view") -%} {{ return(none) }} {%- endif -%}
  {%- set found = run_query(
    "select definition from pg_matviews where schemaname = '" ~ relation.schema ~ "' and matviewname = '" ~ relation.identifier ~ "'"
  ) -%}
  {{ return(found.rows[0][0]) }}
{% endmacro %}
