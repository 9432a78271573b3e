// postgres.js: prepared by default, and parameters are described by the server before they are sent.

const postgres = require('postgres');
const { where, types, run } = require('./cases');

async function main() {
  const sql = postgres({ host: where.host, port: where.port, user: where.user, database: where.database, password: where.password, max: 3, onnotice: () => {}, idle_timeout: 1 });
  const rows = async (query) => [...(await query)];
  await run('create', () => rows(sql`CREATE TABLE j (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE, n int, doc jsonb, tags text[], at timestamptz, price numeric(8,2))`));
  await run('insert', () => rows(sql`INSERT INTO j ${sql({ name: 'a', n: 1, tags: ['x'], doc: sql.json({ k: 1 }) })} RETURNING *`));
  await run('insert many', async () => (await sql`INSERT INTO j ${sql([{ name: 'b', n: 2 }, { name: 'c', n: 3 }])}`).count);
  await run('in', () => rows(sql`SELECT id FROM j WHERE id IN ${sql([1, 3])} ORDER BY id`));
  await run('any', () => rows(sql`SELECT id FROM j WHERE id = ANY(${[1, 2]}) ORDER BY id`));
  await run('any text', () => rows(sql`SELECT id FROM j WHERE name = ANY(${['a', 'b']}) ORDER BY id`));
  await run('date', () => rows(sql`UPDATE j SET at = ${new Date(0)}, price = ${1.5} WHERE id = ${1} RETURNING at, price`));
  await run('update', async () => (await sql`UPDATE j SET ${sql({ n: 10, name: 'z' })} WHERE id = ${2}`).count);
  await run('limit', () => rows(sql`SELECT id FROM j ORDER BY id LIMIT ${2} OFFSET ${1}`));
  await run('fragments', () => rows(sql`SELECT ${sql('id', 'name')} FROM ${sql('j')} WHERE ${sql`n > ${1}`} ORDER BY ${sql('id')}`));
  await run('begin', () => sql.begin(async (inside) => {
    await inside`INSERT INTO j (name) VALUES ('in')`;
    const failed = await inside.savepoint((point) => point`INSERT INTO j (name) VALUES ('in')`).catch((error) => error.code);
    return [failed, [...(await inside`SELECT count(*)::int FROM j`)]];
  }));
  await run('rolled back', async () => {
    await sql.begin(async (inside) => {
      await inside`INSERT INTO j (name) VALUES ('gone')`;
      throw new TypeError('back');
    }).catch(() => {});
    return rows(sql`SELECT count(*)::int FROM j WHERE name = 'gone'`);
  });
  await run('cursor', async () => {
    const got = [];
    await sql`SELECT g FROM generate_series(1, 5) g`.cursor(2, (part) => { got.push(part.length); });
    return got;
  });
  await run('for each', async () => {
    const got = [];
    await sql`SELECT g FROM generate_series(1, 3) g`.forEach((row) => { got.push(row.g); });
    return got;
  });
  await run('described', async () => {
    const found = await sql`SELECT id, price FROM j WHERE id = ${1} AND name = ${'a'}`.describe();
    return [found.types, found.columns.map((column) => [column.name, column.type])];
  });
  await run('unsafe', () => rows(sql.unsafe('SELECT $1::int + 1 AS a', [1])));
  await run('several', async () => (await sql.unsafe('SELECT 1 AS a; SELECT 2 AS b')).map((result) => [...result]));
  await run('copy in', async () => {
    const stream = await sql`COPY j (name, n) FROM STDIN`.writable();
    await new Promise((resolve, reject) => { stream.on('finish', resolve).on('error', reject); stream.end('d\t4\ne\t5\n'); });
    return rows(sql`SELECT count(*)::int FROM j`);
  });
  await run('copy out', async () => {
    let got = '';
    for await (const chunk of await sql`COPY (SELECT name, n FROM j WHERE n IS NOT NULL ORDER BY name) TO STDOUT`.readable()) got += chunk;
    return got;
  });
  await run('listen', async () => {
    let heard;
    const told = new Promise((resolve) => { heard = resolve; });
    const listening = await sql.listen('news', heard);
    await sql.notify('news', 'hello');
    const got = await told;
    await listening.unlisten();
    return got;
  });
  await run('unique', () => rows(sql`INSERT INTO j (name) VALUES ('a')`));
  await run('many at once', async () => (await Promise.all([...Array(20).keys()].map((n) => sql`SELECT ${n}::int AS n`))).map((result) => result[0].n));
  for (const [name, texts] of types) {
    for (const text of texts) {
      await run(`result ${name} ${text}`, () => rows(sql.unsafe(`SELECT '${text.replaceAll("'", "''")}'::${name} AS v`)));
      await run(`array ${name} ${text}`, () => rows(sql.unsafe(`SELECT ARRAY['${text.replaceAll("'", "''")}', NULL]::${name}[] AS v`)));
    }
    await run(`null ${name}`, () => rows(sql.unsafe(`SELECT $1::${name} AS v`, [null])));
  }
  await sql.end({ timeout: 5 });
}

main().catch((error) => { console.log(error); process.exit(1); });
