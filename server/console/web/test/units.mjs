// Parts of the page that need no browser: `node --test test/units.mjs`.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));

/** A module of the page, as node can load it. */
async function load(path) {
  const { outputFiles } = await build({ entryPoints: [join(here, "../src", path)], bundle: true, format: "esm", write: false, jsx: "automatic", jsxImportSource: "preact" });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

const { ResultReader, cells } = await load("result.ts");
const { LiveRows } = await load("sql/liverows.ts");
const { duration, bytes, change, cores, short, instant, intervalSeconds, marks, plural, value } = await load("format.ts");
const { statements, firstWord, onlyReads } = await load("sql/dialect.ts");
const { withFates } = await load("sql/fates.ts");
const { rowNames } = await load("sql/track.ts");
const { ROW_NUMBER, guess, points } = await load("sql/points.ts");
const { acrossRange, nameTexts, timeInFull, timeMarks, timeTexts, upRange } = await load("parts/axis.ts");
const { options } = await load("sql/complete.ts");
const { cellText } = await load("text.ts");
const { arrayText, csv } = await load("sql/csv.ts");
const { layout } = await load("overview/layout.ts");
const { longest } = await load("parts/grid.tsx");
const { markOf } = await load("sql/place.ts");
const { quoted, qualified } = await load("names.ts");
const { judge } = await load("overview/judge.ts");
const { takesRows } = await load("overview/model.ts");

test("a view takes rows through views that are not stored, and not through what was turned away", () => {
  const edge = (relation, reads, what = "rows") => ({ relation, reads, what });
  const edges = [edge(2, 1), edge(3, 2), edge(4, 3), edge(5, 4), edge(6, 1, "late rows")];
  const rates = new Map([[1, 7], [2, undefined], [3, undefined], [4, 0], [5, 0], [6, 0]]);
  assert.deepEqual([1, 2, 4, 5, 6].map((id) => takesRows(id, edges, rates)), [false, true, true, false, false]);
});

test("a pipeline in which nothing happens although rows wait is behind", () => {
  const idle = { kind: "materialized view", state: "running", rate: 0, rows_waiting: 0, freshness_us: 229_000, standsFor: 0, holdsSeconds: 0 };
  const judged = (changed) => {
    const node = { ...idle, ...changed };
    judge(node);
    return [node.status, node.why];
  };
  assert.deepEqual(judged({}), ["idle", undefined]);
  // It works, although it puts nothing out.
  assert.deepEqual(judged({ isActive: true }), ["ok", undefined]);
  assert.deepEqual(judged({ rows_waiting: 40, standsFor: 1 }), ["idle", undefined]);
  const [status, why] = judged({ rows_waiting: 1_050_000, standsFor: 32 });
  assert.equal(status, "behind");
  assert.match(why, /rows wait, and no epoch has changed it for 32/);
  // Its own target is more than that.
  assert.equal(judged({ rows_waiting: 40, standsFor: 5, freshness_target_us: 10_000_000 })[0], "idle");
});

/** Numbers that look like chance, and are the same each time. */
function chance(seed) {
  let state = seed;
  return (below) => ((state = (state * 48271) % 2147483647), state % below);
}

const NASTY = ["", 'a "b", c', "]}],[", "\\", "{[", "\u{1F600}", "null", "1,2", "\n\t", "rows\":["];

/** An answer of the server, and what is to be read from it. */
function madeUp(random) {
  const results = [];
  const wanted = [];
  for (let count = random(4); count >= 0; count--) {
    const names = Array.from({ length: 1 + random(4) }, (_, at) => (random(3) === 0 ? NASTY[random(NASTY.length)] : `c${at}`));
    const values = [];
    const rows = Array.from({ length: random(6) }, () =>
      names.map(() => {
        const kinds = [() => [null, "null"], () => [NASTY[random(NASTY.length)]], () => [undefined, "9223372036854775807"], () => [undefined, '{"k": [1, "]"]}'], () => [undefined, "[[1],[2,3]]"], () => [undefined, "-1.5e-7"], () => [undefined, "true"]];
        const [value, text] = kinds[random(kinds.length)]();
        values.push(value === undefined ? text : value);
        return text ?? JSON.stringify(value);
      }),
    );
    const notices = random(3) === 0 ? [{ severity: "NOTICE", code: "00000", message: NASTY[random(NASTY.length)] }] : [];
    const head = `{"col_names":${JSON.stringify(names)},"col_types":${JSON.stringify(names.map(() => "text"))},"rows":[`;
    const body = rows.map((row) => `[${row.join(",")}]`).join(",");
    const fails = count === 0 && random(3) === 0;
    const tail = fails ? `],"error":{"message":"no ] more","code":"22012"}}` : `],"notices":${JSON.stringify(notices)},"stats":{"elapsed_ms":1.5,"rows":${rows.length}},"tag":"SELECT ${rows.length}"}`;
    results.push(head + body + tail);
    wanted.push({ names, rows: rows.length, values, notices: fails ? [] : notices, error: fails ? "no ] more" : undefined, tag: fails ? undefined : `SELECT ${rows.length}` });
    if (random(3) === 0) {
      results.splice(results.length - 1, 0, '{"ok":"BEGIN","tag":"BEGIN","notices":[],"stats":{"elapsed_ms":0.1,"rows":null}}');
      wanted.splice(wanted.length - 1, 0, { names: [], rows: 0, values: [], notices: [], error: undefined, tag: "BEGIN" });
    }
  }
  return { text: `{"results":[${results.join(",")}]}\n`, wanted };
}

test("results are read whatever the pieces in which they come", () => {
  for (let seed = 1; seed <= 500; seed++) {
    const random = chance(seed);
    const { text, wanted } = madeUp(random);
    const reader = new ResultReader(1e6);
    for (let at = 0; at < text.length; ) {
      const size = 1 + random(random(2) === 0 ? 3 : 80);
      reader.push(text.slice(at, at + size));
      at += size;
    }
    const found = reader.finish().map((result) => ({
      names: result.columns.map((column) => column.name),
      rows: result.rows.length,
      values: result.rows.flat(),
      notices: result.notices,
      error: result.error?.message,
      tag: result.tag,
    }));
    assert.deepEqual(found, wanted, `seed ${seed}: ${text}`);
  }
});

test("an answer that is no result, or only a part of one, is an error", () => {
  const refused = new ResultReader(10);
  refused.push('{"error":{"message":"too many requests"}}');
  assert.equal(refused.finish()[0].error.message, "too many requests");
  const broken = new ResultReader(10);
  broken.push('{"results":[{"col_names":["a"],"col_types":["int4"],"rows":[[1],[2');
  const [result] = broken.finish();
  assert.equal(result.rows.length, 1);
  assert.match(result.error.message, /ended before/);
  const cut = new ResultReader(1);
  cut.push('{"results":[{"col_names":["a"],"col_types":["int4"],"rows":[[1],[2],');
  assert.ok(cut.isCutting && cut.finish()[0].isCut);
  assert.deepEqual(cells('[1,"a,]",null,{"a":[1,2]}]'), ["1", "a,]", null, '{"a":[1,2]}']);
});

test("what is behind a result that is cut is read", () => {
  for (const [rowsMax, charactersMax] of [[2, Infinity], [100, 8]]) {
    const reader = new ResultReader(rowsMax, charactersMax);
    const text = '{"results":[{"col_names":["a"],"col_types":["int4"],"rows":[[1],[2,"]"],[3],[4]],"notices":[],"tag":"SELECT 4"},{"ok":"INSERT 0 1","tag":"INSERT 0 1"}]}';
    for (let at = 0; at < text.length; at += 3) reader.push(text.slice(at, at + 3));
    const [cut, next] = reader.finish();
    assert.deepEqual([cut.rows.length, cut.isCut, cut.tag, cut.error, next.tag, next.isCut], [2, true, "SELECT 4", undefined, "INSERT 0 1", false]);
  }
  // As many as are kept is not too many.
  const exact = new ResultReader(2);
  exact.push('{"results":[{"col_names":["a"],"col_types":["int4"],"rows":[[1],[2]],"tag":"SELECT 2"}]}');
  assert.equal(exact.finish()[0].isCut, false);
});

test("each statement has its fate", () => {
  const result = (tag, error) => ({ columns: [], rows: [], notices: [], isCut: false, isDone: true, tag, error });
  const fates = (tags, statements) => withFates(tags.map((tag) => (tag === null ? result(undefined, { message: "no" }) : result(tag))), statements).map(({ fate }) => fate);
  assert.deepEqual(fates(["BEGIN", "INSERT 0 1", null], ["BEGIN", "INSERT", "SELECT 1/0", "COMMIT"]), ["rolled back", "rolled back", undefined, "not run"]);
  assert.deepEqual(fates(["BEGIN", "INSERT 0 1"], ["BEGIN", "INSERT"]), ["rolled back", "rolled back"]);
  assert.deepEqual(fates(["BEGIN", "INSERT 0 1", "COMMIT", null], ["BEGIN", "INSERT", "COMMIT", "SELEC", "SELECT 2"]), [undefined, undefined, undefined, undefined, "not run"]);
});

test("rows that are followed are those of the changes", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const random = chance(seed);
    const live = new LiveRows();
    const rows = [];
    for (let step = 0; step < 60; step++) {
      const row = { k: random(6), v: `v${random(3)}` };
      const at = rows.length > 0 ? random(rows.length) : -1;
      const kind = at < 0 ? 0 : random(3);
      if (kind === 0) {
        live.apply([{ op: "insert", row, epoch: step }], step);
        rows.push(row);
      } else if (kind === 1) {
        live.apply([{ op: "delete", row: rows[at], epoch: step }], step);
        rows.splice(at, 1);
      } else {
        live.apply([{ op: "update_delete", row: rows[at], epoch: step }, { op: "update_insert", row, epoch: step }], step);
        rows[at] = row;
      }
      const sorted = (list) => list.map((cells) => cells.join()).sort();
      assert.deepEqual(sorted(live.shown().rows), sorted(rows.map((row) => [String(row.k), row.v])), `seed ${seed}, step ${step}`);
      assert.equal(live.total, rows.length);
    }
  }
});

test("an update stays in its place", () => {
  const live = new LiveRows();
  const row = (k, v) => ({ k, v });
  live.apply([{ op: "insert", row: row("a", 1) }, { op: "insert", row: row("b", 1) }, { op: "insert", row: row("c", 1) }], 0);
  // The newest comes first, before there was an update and after it.
  assert.deepEqual(live.shown().rows, [["c", "1"], ["b", "1"], ["a", "1"]]);
  live.apply([{ op: "update_delete", row: row("b", 1) }, { op: "update_insert", row: row("b", 2) }], 1);
  assert.deepEqual(live.shown().rows, [["c", "1"], ["b", "2"], ["a", "1"]]);
});

test("numbers are written with three digits and a unit", () => {
  assert.deepEqual([0, 1e-9, 0.00124, 1.5, 59.96, 3700, 200000].map(duration), ["0 s", "1 ns", "1.24 ms", "1.50 s", "60.0 s", "1 h 1 min", "2 d 7 h"]);
  assert.deepEqual([0, 999, 28000, 1.5e9].map(bytes), ["0 B", "999 B", "28.0 kB", "1.50 GB"]);
  assert.deepEqual([0, 7, 0.25, 12345, 6e6].map(short), ["0", "7", "0.25", "12.3 k", "6.00 M"]);
  assert.deepEqual([0, 0.0002, 0.004, 0.35, 1.5].map(cores), ["0", "< 0.001", "0.004", "0.35", "1.50"]);
  assert.deepEqual([0.071, -0.2, 0, -0.001].map(change), ["+7 %", "-20 %", "0 %", "0 %"]);
  assert.equal(duration(null), "–");
  assert.equal(instant("2026-01-01 00:00:00.5+00"), Date.UTC(2026, 0, 1) + 500);
  assert.equal(instant("2026-01-31"), Date.UTC(2026, 0, 31));
  assert.deepEqual([plural(1, "row"), plural(2000, "row")], ["1 row", "2,000 rows"]);
  assert.deepEqual([value(2e-9), value(1234567), value(0.1 + 0.2), value(5e15)], ["2.00e-9", "1,234,567", "0.3", "5.00e+15"]);
  for (const step of [1e-9, 0.0005, 0.25, 1, 250, 2500, 5e6, 1e15]) {
    const texts = marks([0, step, 2 * step, 3 * step]);
    assert.equal(new Set(texts).size, 4, texts.join());
  }
  assert.equal(intervalSeconds("1 day 02:03:04.5"), 86400 + 7384.5);
  assert.equal(intervalSeconds("-00:00:01"), -1);
});

test("names and files are quoted where they must be", () => {
  assert.deepEqual(["orders", "Orders", 'a"b', "orders$late"].map(quoted), ["orders", '"Orders"', '"a""b"', '"orders$late"']);
  assert.deepEqual(["order", "user", "select", "stream"].map(quoted), ['"order"', '"user"', '"select"', "stream"]);
  assert.equal(qualified({ schema: "s", name: "t" }), "s.t");
  const result = { columns: [{ name: "a", type: "int4" }, { name: "b", type: "text" }], rows: [["1", null], ["", 'x "y"']] };
  assert.equal(csv(result), 'a,b\n1,\n"","x ""y"""\n');
});

test("arrays are written as COPY reads them", () => {
  assert.equal(arrayText("[1, 9223372036854775807,null]", "int8"), "{1,9223372036854775807,NULL}");
  assert.equal(arrayText('["a b","","NULL","q\\"\\\\",null,"ä"]', "text"), String.raw`{"a b","","NULL","q\"\\",NULL,ä}`);
  assert.equal(arrayText('[["1","2"],[]]', "numeric"), "{{1,2},{}}");
  assert.equal(arrayText('[{"k":[1,"]"]},[1],"t",null]', "jsonb"), String.raw`{"{\"k\":[1,\"]\"]}",[1],"\"t\"",NULL}`);
  assert.equal(arrayText("[]", "int4"), "{}");
  assert.equal(csv({ columns: [{ name: "l", type: "_int4" }, { name: "j", type: "jsonb" }], rows: [["[1,2]", "[1,2]"]] }), 'l,j\n"{1,2}","[1,2]"\n');
});

test("columns are as wide as their widest value, and do not become narrower", () => {
  const columns = [{ name: "i", type: "int4" }];
  const rows = Array.from({ length: 10_000 }, (_, at) => [String(1 + at)]);
  const first = longest(undefined, columns, rows.slice(0, 200), true);
  assert.deepEqual(first.letters, [3]);
  const all = longest(first, columns, rows, true);
  assert.deepEqual(all.letters, [5]);
  assert.deepEqual(longest(all, columns, [["7"]], true).letters, [5]);
  // Rows that change are looked at again, whatever is the last one.
  const last = ["2"];
  const live = longest(undefined, columns, [["1"], last], false);
  assert.deepEqual(longest(live, columns, [["1000000"], last], false).letters, [7]);
  assert.deepEqual(longest(all, [{ name: "other", type: "text" }], [["7"]], true).letters, [6]);
});

test("many relations are laid out in a place of about the form of a window", () => {
  const node = (key) => ({ key, kind: "materialized view" });
  const overlapping = ({ places }) => {
    const all = [...places.values()];
    return all.filter((one, at) => all.some((other, place) => place < at && Math.abs(one.x - other.x) < 224 && Math.abs(one.y - other.y) < 112)).length;
  };
  // Over one stream, and a view over one of them.
  const views = Array.from({ length: 200 }, (_, at) => `v${at}`);
  const nodes = ["s", ...views, "last"].map(node);
  const edges = [...views.map((to) => ({ from: "s", to })), { from: "v0", to: "last" }];
  const wide = layout(nodes, edges, "LR", 1300);
  assert.equal(overlapping(wide), 0);
  assert.ok(wide.width < 4 * wide.height && wide.height < 4 * wide.width, `${wide.width} x ${wide.height}`);
  assert.ok(wide.places.get("last").x > Math.max(...views.map((key) => wide.places.get(key).x)));
  const narrow = layout(nodes, edges, "TB", 400);
  assert.equal(overlapping(narrow), 0);
  assert.ok(narrow.width <= 400, `${narrow.width}`);
  // Each by itself: beside each other, as far as there is room.
  const apart = layout(views.map(node), [], "LR", 1300);
  assert.equal(overlapping(apart), 0);
  assert.ok(apart.width <= 1300 && apart.height < 50 * 140, `${apart.width} x ${apart.height}`);
});

test("a text is cut into its statements", () => {
  const cut = (text) => statements(text).map((piece) => piece.text);
  assert.deepEqual(cut("SELECT 1; SELECT ';' AS \"a;b\" -- no; end\n, 2;\n\n;"), ["SELECT 1", "SELECT ';' AS \"a;b\" -- no; end\n, 2"]);
  assert.deepEqual(cut("CREATE FUNCTION f() RETURNS int AS $$ SELECT 1; $$ LANGUAGE sql; /* ; */ SELECT 2"), ["CREATE FUNCTION f() RETURNS int AS $$ SELECT 1; $$ LANGUAGE sql", "SELECT 2"]);
  assert.deepEqual(cut("-- nothing\n;"), []);
  const text = "SELECT 1;\n  SELECT nope";
  for (const piece of statements(text)) assert.equal(text.slice(piece.from, piece.from + piece.text.length), piece.text);
});

test("a statement is known by its first word, and by what it does", () => {
  assert.deepEqual(["-- x\nSUBSCRIBE TO a", " /* b */ select 1", ""].map(firstWord), ["SUBSCRIBE", "SELECT", ""]);
  assert.deepEqual(["SELECT 1", "WITH a AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM a", "INSERT INTO t VALUES (1) RETURNING i", "SELECT 1 INTO t"].map(onlyReads), [true, false, false, false]);
});

test("marks of time stand at whole steps, and say no more than tells them apart", () => {
  const at = (text) => Date.parse(`${text}Z`) / 1000;
  const texts = (low, high, most) => timeTexts(timeMarks(at(low), at(high), most, true), true, true);
  assert.deepEqual(texts("2000-06-01", "2020-06-01", 6), ["2005", "2010", "2015", "2020"]);
  assert.deepEqual(texts("2024-01-15", "2024-04-20", 4), ["2024-02", "2024-03", "2024-04"]);
  assert.deepEqual(texts("2024-01-01", "2024-01-25", 4), ["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22"]);
  assert.deepEqual(texts("2024-01-01T23:10", "2024-01-02T00:40", 3), ["23:30\n2024-01-01", "00:00\n2024-01-02", "00:30"]);
  assert.deepEqual(texts("2024-01-01T12:00:00", "2024-01-01T12:00:20", 4), ["12:00:00\n2024-01-01", "12:00:05", "12:00:10", "12:00:15", "12:00:20"]);
  assert.deepEqual(texts("2024-01-01T12:00:59.990", "2024-01-01T12:01:00.010", 4), ["12:00:59.990\n2024-01-01", "12:00:59.995", "12:01:00.000", "12:01:00.005", "12:01:00.010"]);
  assert.deepEqual(timeTexts(timeMarks(0.00002, 0.0001, 4, true), true, false), ["00:00:00.00002", "00:00:00.00004", "00:00:00.00006", "00:00:00.00008", "00:00:00.00010"]);
  // Whatever the span, there are some, and each is told from the one before it.
  for (let span = 1e-5; span < 1e11; span *= 1.7) {
    const marks = timeMarks(at("2024-02-29T10:11:12"), at("2024-02-29T10:11:12") + span, 8, true);
    assert.ok(marks.length >= 1 && marks.length <= 10, `${span}: ${marks.length}`);
    const texts = timeTexts(marks, true, true);
    assert.ok(texts.every((text, place) => text !== texts[place - 1]), `${span}: ${texts}`);
  }
  assert.equal(timeInFull(at("2024-01-01T12:00:00") + 0.25, true), "2024-01-01 12:00:00.25");
  assert.equal(timeInFull(at("2024-01-01T12:00:00") + 0.9999999, true), "2024-01-01 12:00:01");
});

test("an axis goes to where its values are, and names below bars are told apart", () => {
  assert.deepEqual(acrossRange([5], false), [4, 6]);
  assert.deepEqual(acrossRange([86400], true), [0, 172800]);
  assert.deepEqual(upRange(0, 100, 0, true), [0, 108]);
  assert.deepEqual(upRange(1000, 1010, 0, false).map(Math.round), [0, 1091]);
  assert.deepEqual(upRange(1000, 1010, 0, true), [999.2, 1010.8]);
  assert.deepEqual(upRange(-1010, -1000, 0, true), [-1010.8, -999.2]);
  assert.deepEqual(upRange(null, null, 0, true), [0, 1]);
  assert.deepEqual(nameTexts(["Ulm", "Bonn"], 400), { texts: ["Ulm", "Bonn"], aslant: false, below: 30, left: 0 });
  const long = Array.from({ length: 60 }, (_, at) => `a very long name of something ${at}`);
  const { texts, aslant } = nameTexts(long, 1200);
  assert.ok(aslant);
  assert.equal(new Set(texts).size, 60);
  assert.ok(texts.every((text) => text.length === 20));
  assert.equal(nameTexts(long, 300).texts.filter((text) => text !== "").length, 20);
  assert.deepEqual(marks([0, 2.5, 5]), ["0", "2.5", "5"]);
  assert.deepEqual(marks([1000000, 1000002]), ["1,000,000", "1,000,002"]);
});

test("a chart is first drawn over time, else by name, else by number", () => {
  const of = (...types) => guess(types.map((type) => ({ name: "c", type })));
  assert.deepEqual(of("int4", "timestamp", "text", "float8"), [1, 3]);
  assert.deepEqual(of("int4", "text", "int8"), [1, 2]);
  assert.deepEqual(of("int8", "text"), [1, 0]);
  assert.deepEqual(of("int4", "int8"), [0, 1]);
  assert.deepEqual(of("numeric"), [ROW_NUMBER, 0]);
  assert.equal(of("text", "date"), undefined);
  assert.deepEqual(points([{ name: "n", type: "int4" }], [["7"], [null], ["9"]], ROW_NUMBER, 0), { x: [1, 2, 3], y: [7, null, 9], time: false });
});

test("points are what the values are", () => {
  const columns = (type) => [{ name: "x", type }, { name: "y", type: "numeric" }];
  assert.deepEqual(points(columns("date"), [["2024-01-02", "1.5"], ["2024-01-01", "NaN"]], 0, 1), { x: [Date.UTC(2024, 0, 1) / 1000, Date.UTC(2024, 0, 2) / 1000], y: [null, 1.5], time: true });
  for (const text of ["2024-01-01 00:00:00", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00+00", "2024-01-01 02:00:00+02"]) {
    assert.equal(points(columns("timestamptz"), [[text, "1"]], 0, 1).x[0], Date.UTC(2024, 0, 1) / 1000, text);
  }
});

test("rows with the same name are told apart", () => {
  const columns = [{ name: "city", type: "text" }, { name: "year", type: "int4" }, { name: "n", type: "int8" }];
  assert.deepEqual(rowNames(columns, [["Ulm", "1", "5"], ["Ulm", "2", "6"], ["Bonn", "1", "7"]]), ["Ulm", "Ulm (2)", "Bonn"]);
});

test("completion knows the columns of what is read", () => {
  const names = {
    relations: [
      { schema: "public", name: "orders", columns: ["customer", "amount"] },
      { schema: "public", name: "order", columns: ["id"] },
      { schema: "mr_catalog", name: "relations", columns: ["kind"] },
    ],
    functions: ["date_trunc"],
  };
  const labels = (statement, ...prefix) => options(statement, prefix, names).map(({ label }) => label);
  assert.ok(labels("SELECT  FROM orders").includes("amount") && !labels("SELECT  FROM orders").includes("kind"));
  assert.deepEqual(labels("SELECT o. FROM orders AS o", "o"), ["customer", "amount"]);
  assert.deepEqual(labels("SELECT * FROM mr_catalog.", "mr_catalog"), ["relations"]);
  assert.deepEqual(labels("SELECT", "mr_catalog", "relations"), ["kind"]);
  assert.ok(labels("SELECT").includes("date_trunc") && labels("SELECT").includes("mr_catalog"));
  assert.equal(options("SELECT", [], names).find(({ label }) => label === "order").apply, '"order"');
});

test("an error is underlined where it is", () => {
  const at = (text, error, from = 0) => {
    const found = markOf(text, from, { message: "wrong", ...error });
    return found && [text.slice(found.from - from, found.to - from), found.from];
  };
  assert.deepEqual(at("SELECT * FROM t WHERE i='x'", { position: 23 }, 100), ["i", 122]);
  assert.deepEqual(at("SELECT * FROM t WHERE t.i='x'", { position: 23 }), ["t.i", 22]);
  // The position of a quoted name is that of its first letter, or of its quote.
  assert.deepEqual(at('SELECT "a b" FROM t', { position: 9 }), ['"a b"', 7]);
  assert.deepEqual(at('SELECT "a b" FROM t', { position: 8 }), ['"a b"', 7]);
  assert.deepEqual(at("SELECT '\u{1F600}', nope", { position: 13 }), ["nope", 13]);
  assert.deepEqual(at("SELECT", { position: 7 }), ["T", 5]);
  // A value that has no position is where it is written.
  const syntax = { message: 'invalid input syntax for type integer: "it\'s"', code: "22P02" };
  assert.deepEqual(at("SELECT * FROM t WHERE i='it''s' AND its", syntax), ["'it''s'", 24]);
  assert.equal(at("SELECT 'it''s' WHERE i='it''s'", syntax), undefined);
  assert.equal(at("SELECT i FROM t", syntax), undefined);
  assert.equal(at("SELECT 'it''s'", { ...syntax, code: "42883" }), undefined);
});

test("texts do not move what stands beside them", () => {
  assert.equal(cellText("a\nb\u202ec"), "a↵b‹U+202E›c");
  assert.match(cellText("x".repeat(3_000_000)), /^x{400}… \(3,000,000 characters\)$/);
});
