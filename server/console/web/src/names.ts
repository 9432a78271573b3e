// Names of SQL as text.

/** Words that cannot be a name everywhere: those of PostgreSQL (pg_get_keywords) that are more than unreserved, and ours. */
const RESERVED = new Set(
  ("all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast char " +
  "character check coalesce collate collation column concurrently constraint create cross cube current_catalog current_date " +
  "current_role current_schema current_time current_timestamp current_user dec decimal default deferrable desc distinct do " +
  "else emit end except exists explain extract false fetch float for foreign freeze from full grant greatest group grouping " +
  "having hop ilike in initially inner inout insert int integer intersect interval into is isnull join json json_array " +
  "json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value lateral " +
  "leading least left like limit localtime localtimestamp materialized merge_action minus national natural nchar none " +
  "normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay partition pivot placing " +
  "position precision primary qualify real references returning right rollup row sample select session_user set setof " +
  "similar smallint some subscribe substring symmetric system_user table tablesample then time timestamp to top trailing " +
  "treat trim true tumble union unique unnest user using values varchar variadic verbose view watermark when where window " +
  "with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable").split(" "),
);

/** An identifier, quoted where it must be. */
export function quoted(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) && !RESERVED.has(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** A relation by its name, with its schema where that is not `public`. */
export function qualified(relation: { schema: string; name: string }): string {
  return relation.schema === "public" ? quoted(relation.name) : `${quoted(relation.schema)}.${quoted(relation.name)}`;
}
