// Memory by who holds it, against the limit.
import { bytes, percent } from "../format";
import { Panel } from "../parts/panel";
import { cellText } from "../text";
import { TERMS } from "../terms";
import { series } from "../theme";
import type { MemoryHolder } from "./facts";

const SHOWN_MAX = 10;
const OWN = "the process itself";
const NONE = "series-none";

/** The colour of each owner, by its number. It stays while the page is open, whoever holds more meanwhile. */
const colours = new Map<string, number>();

function colourOf(name: string): string {
  const colour = colours.get(name) ?? colours.size;
  colours.set(name, colour);
  return series(colour);
}

interface Part {
  name: string;
  bytes: number;
  /** The class of its bars. What is no one owner has no colour. */
  colour: string;
  /** It is a table, a stream or a view. */
  isRelation: boolean;
}

/** Who it is: the names of some say already what they are. */
function holderName({ holder, name }: MemoryHolder): string {
  if (name === null) return holder;
  // What is being made is called `view "its name"`.
  return cellText(name.startsWith(holder) ? name.replace(/^(\S+) "(.*)"$/, "$1 $2") : `${holder} ${name}`);
}

export function Memory({ memory }: { memory: MemoryHolder[] }) {
  const process = (name: string) => memory.find((row) => row.holder === "process" && row.name === name)?.bytes;
  const [used, charged, limit] = [process("used") ?? 0, process("charged") ?? 0, process("limit")];
  const owners = memory.filter((row) => row.holder !== "process" && row.bytes > 0).sort((one, other) => other.bytes - one.bytes);
  const parts: Part[] = owners.slice(0, SHOWN_MAX).map((row) => ({ name: holderName(row), bytes: row.bytes, colour: colourOf(holderName(row)), isRelation: ["table", "stream", "view"].includes(row.holder) }));
  const rest = owners.slice(SHOWN_MAX).reduce((sum, row) => sum + row.bytes, 0);
  if (rest > 0) parts.push({ name: owners.length - SHOWN_MAX === 1 ? "1 other" : `${owners.length - SHOWN_MAX} others`, bytes: rest, colour: NONE, isRelation: false });
  const own = Math.max(0, used - charged);
  parts.push({ name: OWN, bytes: own, colour: NONE, isRelation: false });
  const whole = Math.max(limit ?? 0, used, 1);
  const most = Math.max(...parts.map((part) => part.bytes), 1);
  const spilled = memory.reduce((sum, row) => sum + row.on_disk_bytes, 0);
  return (
    <Panel title="Memory" tip={TERMS.memory}>
      <p data-tip={TERMS.memoryUsed} tabIndex={0}>
        <b>{bytes(used)}</b> {limit === undefined ? "used; there is no limit" : `of ${bytes(limit)}, ${percent(used / limit)}`}
        {spilled > 0 ? `, and ${bytes(spilled)} of state on disk` : ""}
      </p>
      <div class="bar-track whole" role="img" aria-label={`${bytes(used)} of ${bytes(whole)}`}>
        {parts.map((part) => (
          <i key={part.name} class={part.colour} style={{ width: `${(part.bytes / whole) * 100}%` }} data-tip={`${part.name}: ${bytes(part.bytes)}`} />
        ))}
      </div>
      <div class="bars">
        {parts.map((part) => (
          <div key={part.name} class="bar-line" data-tip={`${part.name}: ${bytes(part.bytes)}, ${percent(part.bytes / Math.max(1, used))} of what is used. ${part.name === OWN ? TERMS.memoryOwn : part.isRelation ? TERMS.bytes : TERMS.held}`} tabIndex={0}>
            <span>{part.name}</span>
            <div class="bar-track">
              <div class={`bar ${part.colour}`} style={{ width: `${Math.max(0.5, (part.bytes / most) * 100)}%` }} />
            </div>
            <span class="number">{bytes(part.bytes)}</span>
          </div>
        ))}
      </div>
    </Panel>
  );
}
