// The machine room: what the cores, the disks and the memory do, and who waits for what.
import { useEffect } from "preact/hooks";
import { ago, bytes, cores, count, duration, intervalSeconds, percent, plural, short } from "../format";
import { TimeChart } from "../parts/chart";
import { DemoOffer } from "../parts/demo";
import { Fault, Panel, Table } from "../parts/panel";
import { usePoll } from "../poll";
import { TERMS } from "../terms";
import { cellText } from "../text";
import { DISK_KINDS, askAll, askFacts, history, type Facts } from "./facts";
import { Memory } from "./memory";

const EVERY_MS = 2500;
const CLASSES = ["stream", "interactive", "batch"];

export function RoomPage() {
  const polled = usePoll<Facts>(askFacts, EVERY_MS);
  const facts = polled.value;
  // Whoever comes sees everything as it is now.
  useEffect(() => askAll, []);
  if (!facts) return <Fault message={polled.error} />;
  return (
    <div class="room">
      <Fault message={polled.error} />
      {facts.troubles.length > 0 && (
        <Panel title="Errors" wide>
          <Table
            label="errors"
            rows={facts.troubles}
            empty=""
            mark={() => "bad"}
            columns={[
              { head: "what", tip: "Its kind.", cell: (row) => row.what },
              { head: "name", tip: "Its name.", cell: (row) => row.name },
              { head: "error", tip: "The last one since the server started.", cell: (row) => cellText(row.error) },
            ]}
          />
        </Panel>
      )}
      {facts.batches.length === 0 && <DemoOffer />}
      <Cores facts={facts} />
      <Memory memory={facts.memory} />
      <Disks facts={facts} />
      <Pipelines facts={facts} />
      <Waits facts={facts} />
      <Jobs facts={facts} />
      <Checkpoints facts={facts} />
    </div>
  );
}

function Cores({ facts }: { facts: Facts }) {
  const all = facts.workers.reduce((sum, worker) => sum + worker.cores, 0);
  const series = CLASSES.map((name) => history.of(`cpu ${name}`));
  const x = series[0]?.at ?? [];
  const pauses = history.of("paused");
  const paused = facts.cpu.reduce((sum, row) => sum + row.tasks_paused, 0);
  return (
    <>
      <Panel title={`Cores by class, of ${all}`} tip={TERMS.classes} wide>
        <TimeChart label="cores by class" x={x} lines={CLASSES.map((name, at) => ({ label: name, values: series[at]?.values ?? [] }))} stacked height={190} unit="cores" top={0.1} />
        <Table
          label="classes"
          rows={facts.cpu}
          empty=""
          columns={[
            { head: "class", tip: TERMS.classes, cell: (row) => row.class },
            { head: "cores now", number: true, tip: TERMS.busy, cell: (row) => cores(history.of(`cpu ${row.class}`).values.at(-1)) },
            { head: "waits for a core, median", number: true, tip: TERMS.queue, cell: (row) => duration(row.queue_p50_us / 1e6) },
            { head: "99 %", number: true, tip: TERMS.queue, cell: (row) => duration(row.queue_p99_us / 1e6) },
            { head: "ready", number: true, tip: "Tasks that could run and wait for a core now.", cell: (row) => count(row.tasks_waiting) },
            { head: "paused", number: true, tip: TERMS.paused, cell: (row) => count(row.tasks_paused) },
            { head: "pieces of work", number: true, tip: "Monotasks since the start of the server.", cell: (row) => short(row.monotasks) },
          ]}
        />
      </Panel>
      <Panel title="Workers">
        <Table
          label="workers"
          rows={facts.workers}
          empty=""
          columns={[
            { head: "worker", tip: TERMS.worker, cell: (row) => `${row.id}, ${row.address}` },
            { head: "state", tip: "Whether it takes tasks.", cell: (row) => row.state },
            { head: "cores", number: true, tip: TERMS.cores, cell: (row) => `${row.cores}, ${percent(row.busy_share)}` },
            { head: "partitions", number: true, tip: TERMS.partitions, cell: (row) => count(row.partitions) },
            { head: "memory", number: true, tip: "Memory that the state of these partitions takes.", cell: (row) => bytes(row.state_bytes) },
          ]}
        />
      </Panel>
      <Panel title="Suspended tasks" tip={TERMS.paused}>
        <TimeChart label="suspended tasks" x={pauses.at} lines={[{ label: "suspended", values: pauses.values }]} height={110} unit="tasks" />
        {paused === 0 ? (
          <p class="quiet">None: nothing more urgent needs their cores.</p>
        ) : (
          <Table
            label="suspended tasks"
            rows={facts.paused}
            empty="None now."
            columns={[
              { head: "of", tip: "The query and its stage, or the class of work.", cell: (row) => (row.query === null ? row.class : `query ${row.query}${row.stage === null ? "" : `, stage ${row.stage}`}`) },
              { head: "pauses", number: true, tip: "How often it was suspended.", cell: (row) => count(row.pauses) },
              { head: "paused for", number: true, tip: "All its pauses together.", cell: (row) => duration(row.paused_ms / 1e3) },
              { head: "holds", number: true, tip: "Memory that it keeps meanwhile.", cell: (row) => bytes(row.held_bytes) },
            ]}
          />
        )}
      </Panel>
    </>
  );
}

function Disks({ facts }: { facts: Facts }) {
  const names = DISK_KINDS.map(([name]) => name);
  const series = names.map((name) => history.of(`disk ${name}`));
  const x = series[0]?.at ?? [];
  return (
    <Panel title="Disks and network" tip={TERMS.diskBusy}>
      <TimeChart label="bytes a second" x={x} lines={names.map((name, at) => ({ label: name, values: series[at]?.values ?? [] }))} height={170} unit="bytes a second" top={1000} format={(value) => `${bytes(value)}/s`} />
      <Table
        label="disks"
        rows={facts.disks}
        empty="No disk was used yet."
        columns={[
          { head: "disk", tip: "The disk, and the kind of request.", cell: (row) => `${row.disk}: ${row.kind}` },
          { head: "requests", number: true, tip: "Requests since the start of the server.", cell: (row) => short(row.monotasks) },
          { head: "bytes", number: true, tip: "Bytes of all of them.", cell: (row) => bytes(row.bytes) },
          { head: "each took", number: true, tip: TERMS.service, cell: (row) => duration(row.service_us / Math.max(1, row.monotasks) / 1e6) },
          { head: "waited", number: true, tip: TERMS.queued, cell: (row) => duration(row.queue_us / Math.max(1, row.monotasks) / 1e6) },
        ]}
      />
      {facts.workers.every((worker) => worker.address === "in process") && <p class="quiet">All workers are in this process: nothing crosses a network.</p>}
    </Panel>
  );
}

function Pipelines({ facts }: { facts: Facts }) {
  const size = history.of("group size");
  return (
    <Panel title="Pipelines and their groups" tip={TERMS.group} wide>
      <TimeChart label="largest group size" x={size.at} lines={[{ label: "epochs a group", values: size.values }]} height={110} unit="epochs a group" />
      <Table
        label="pipelines"
        rows={facts.batches}
        empty="There is no pipeline yet: a materialized view makes one."
        columns={[
          { head: "pipeline", tip: TERMS.pipeline, cell: (row) => row.pipeline },
          { head: "epoch", number: true, tip: TERMS.epoch, cell: (row) => count(row.epoch) },
          { head: "under way for", number: true, tip: TERMS.epochAge, cell: (row) => duration(row.epoch_age_us === null ? null : row.epoch_age_us / 1e6) },
          { head: "inputs", number: true, tip: TERMS.inputs, cell: (row) => count(row.sources) },
          { head: "views", number: true, tip: TERMS.views, cell: (row) => count(row.views) },
          { head: "group", number: true, tip: TERMS.group, cell: (row) => plural(row.group_size, "epoch") },
          { head: "scheduling", number: true, tip: TERMS.coordination, cell: (row) => duration(row.scheduling_us === null ? null : row.scheduling_us / 1e6) },
          { head: "execution", number: true, tip: TERMS.execution, cell: (row) => duration(row.execution_us === null ? null : row.execution_us / 1e6) },
          { head: "workers", number: true, tip: "Workers that run its tasks.", cell: (row) => count(row.workers) },
          { head: "waiting", number: true, tip: "Writes to its inputs that wait for room: it takes no more until its epochs are done.", cell: (row) => plural(row.writes_waiting, "write") },
        ]}
      />
    </Panel>
  );
}

function Waits({ facts }: { facts: Facts }) {
  const rows = history.of("rows waiting");
  return (
    <>
      <Panel title="Back-pressure" tip={TERMS.backpressure}>
        <TimeChart label="rows that wait for their epoch" x={rows.at} lines={[{ label: "rows waiting", values: rows.values }]} height={110} unit="rows" />
        <Table
          label="who waits"
          rows={facts.waiting}
          empty="Nobody waits for room."
          mark={() => "bad"}
          columns={[
            { head: "who", tip: "The view, or who writes to it.", cell: (row) => row.source ?? row.view },
            { head: "why", tip: "Why it is held back there, and what it waits for.", cell: (row) => `${row.reason}${row.waits_for ? `: ${row.waits_for}` : ""}${row.source && row.view ? `, behind ${row.view}` : ""}` },
            { head: "waiting", number: true, tip: "Tasks that wait now.", cell: (row) => count(row.tasks_waiting) },
            { head: "for", number: true, tip: "How long the one that has waited longest has waited.", cell: (row) => duration(row.waiting_us / 1e6) },
          ]}
        />
      </Panel>
      <Panel title="Late rows" tip={TERMS.late}>
        <Table
          label="late rows"
          rows={facts.late}
          empty="No stream has a watermark."
          mark={(row) => (row.late_rows > 0 ? "bad" : "")}
          columns={[
            { head: "stream", tip: "The stream with the watermark.", cell: (row) => row.relation },
            { head: "late", number: true, tip: TERMS.late, cell: (row) => count(row.late_rows) },
            { head: "from the future", number: true, tip: "Rows whose event time was too far ahead of the clock.", cell: (row) => count(row.future_rows) },
            { head: "kept in", tip: "Where these rows can be read.", cell: (row) => row.kept_in ?? "not kept" },
          ]}
        />
      </Panel>
    </>
  );
}

function Jobs({ facts }: { facts: Facts }) {
  return (
    <Panel title="Jobs" tip="Views that are being made, or could not be.">
      <Table
        label="jobs"
        rows={facts.jobs}
        empty="No view is being made."
        mark={(row) => (row.error ? "bad" : "")}
        columns={[
          { head: "view", tip: "The view that is being made.", cell: (row) => row.view },
          {
            head: "progress",
            tip: "The share of what was there before it that it has read.",
            cell: (row) => (
              <span class="progress">
                <progress value={row.percent} max={100} aria-label={`progress of ${row.view}`} /> {row.percent.toFixed(0)} %
              </span>
            ),
          },
          { head: "rows", number: true, tip: "Rows that were there before it: read so far, and all of them.", cell: (row) => `${short(row.rows_done)} of ${short(row.rows_total)}` },
          { head: "time left", number: true, tip: "If it goes on as fast as so far.", cell: (row) => duration(intervalSeconds(row.time_left)) },
          { head: "state", tip: "How far it is, or why it failed.", cell: (row) => cellText(row.error ?? row.state) },
        ]}
      />
    </Panel>
  );
}

function Checkpoints({ facts }: { facts: Facts }) {
  const last = facts.checkpoints.slice(-8).reverse();
  return (
    <Panel title="Checkpoints" tip={TERMS.checkpoint}>
      <Table
        label="checkpoints"
        rows={last}
        empty="None was written yet."
        mark={(row) => (row.error ? "bad" : "")}
        columns={[
          { head: "pipeline", tip: TERMS.pipeline, cell: (row) => row.pipeline },
          { head: "taken", tip: "When it was taken.", cell: (row) => ago(row.taken_at) },
          { head: "epoch", number: true, tip: "The epoch whose state it is.", cell: (row) => count(row.epoch) },
          { head: "written", number: true, tip: "Bytes that were written for it: what no earlier checkpoint has, and its table of contents.", cell: (row) => bytes(row.bytes_written) },
          { head: "holds", number: true, tip: "Bytes of all that it holds, those of earlier checkpoints included.", cell: (row) => bytes(row.bytes_total) },
          { head: "took", number: true, tip: "Time from its beginning to its end, while epochs went on.", cell: (row) => duration(row.written_ms / 1e3) },
          { head: "state", tip: "How far it is, or why it failed.", cell: (row) => cellText(row.error ?? row.state) },
        ]}
      />
    </Panel>
  );
}
