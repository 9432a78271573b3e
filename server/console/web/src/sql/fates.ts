// What became of the statements of a run: what was not run after a failure, and what was rolled back with its transaction.
import { empty, type Result } from "../result";

/** The results, one for each statement; those of which there is more to say than the server said have it. */
export function withFates(results: Result[], statements: string[]): Result[] {
  const all = results.map((result, at): Result => ({ ...result, statement: statements[at] }));
  let begun: number | undefined;
  for (const [at, { tag }] of all.entries()) {
    if (tag === "BEGIN" || tag === "START TRANSACTION") begun = at;
    else if (tag === "COMMIT" || tag === "ROLLBACK") begun = undefined;
  }
  // A run is a session of its own: what is still open at its end is undone.
  if (begun !== undefined) {
    for (const result of all.slice(begun)) if (!result.error) result.fate = "rolled back";
  }
  if (all.length === 0) return all;
  return [...all, ...statements.slice(all.length).map((statement): Result => ({ ...empty(), statement, fate: "not run", isDone: true }))];
}
