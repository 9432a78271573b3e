// Names of SQL as text.

/** An identifier, quoted where it must be. */
export function quoted(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** A relation by its name, with its schema where that is not `public`. */
export function qualified(relation: { schema: string; name: string }): string {
  return relation.schema === "public" ? quoted(relation.name) : `${quoted(relation.schema)}.${quoted(relation.name)}`;
}

/** A text as SQL writes it. */
export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
