// node-postgres: simple and extended queries, prepared statements, cursors, COPY, pools, notifications.

const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');
const { from, to } = require('pg-copy-streams');
const { pipeline } = require('node:stream/promises');
const { Readable, Writable } = require('node:stream');
const { where, types, run } = require('./cases');

async function main() {
  const client = new Client(where);
  client.on('error', () => {});
  await client.connect();
  const rows = async (text, values) => (await client.query(text, values)).rows;

  await run('create', async () => (await client.query('CREATE TABLE n (id serial PRIMARY KEY, name text UNIQUE, n int CHECK (n > 0), doc jsonb, tags text[], at timestamptz)')).command);
  await run('insert', async () => rows('INSERT INTO n (name, n, doc, tags, at) VALUES ($1, $2, $3, $4, $5) RETURNING id, name, n, doc, tags, at', ['a', 1, { k: [1] }, ['x', 'y'], new Date(0)]));
  await run('insert many', async () => (await client.query('INSERT INTO n (name, n) SELECT * FROM unnest($1::text[], $2::int[])', [['b', 'c'], [2, 3]])).rowCount);
  await run('any', () => rows('SELECT id FROM n WHERE id = ANY($1) ORDER BY id', [[1, 2]]));
  await run('limit', () => rows('SELECT id FROM n ORDER BY id LIMIT $1 OFFSET $2', [1, 1]));
  await run('text for int', () => rows('SELECT id FROM n WHERE id = $1', ['2']));
  await run('named', async () => {
    const got = [];
    for (const id of [1, 2, 3]) got.push((await client.query({ name: 'by id', text: 'SELECT name FROM n WHERE id = $1', values: [id] })).rows[0].name);
    return got;
  });
  await run('row mode', async () => (await client.query({ text: 'SELECT 1 AS a, 2 AS a', rowMode: 'array' })).rows);
  await run('binary', async () => (await client.query({ text: 'SELECT $1::int AS a, $2::text AS b, true AS c', values: [1, 'x'], binary: true })).rows);
  await run('fields', async () => (await client.query('SELECT * FROM n')).fields.map((field) => [field.name, field.dataTypeID, field.dataTypeSize, field.dataTypeModifier]));
  await run('several statements', async () => (await client.query('SELECT 1 AS a; SELECT 2 AS b')).map((result) => result.rows));
  await run('unique', () => rows('INSERT INTO n (name) VALUES ($1)', ['a']));
  await run('diagnosed', async () => {
    try {
      await client.query('INSERT INTO n (name) VALUES ($1)', ['a']);
      return null;
    } catch (error) {
      return [error.severity, error.code, error.detail, error.schema, error.table, error.constraint];
    }
  });
  await run('check', async () => {
    try {
      await client.query('INSERT INTO n (n) VALUES (-1)');
      return null;
    } catch (error) {
      return [error.code, error.schema, error.table, error.constraint];
    }
  });
  await run('position', async () => {
    try {
      await client.query('SELECT nothing FROM n');
      return null;
    } catch (error) {
      return [error.code, error.position];
    }
  });
  await run('transaction', async () => {
    await client.query('BEGIN');
    await client.query('CREATE TABLE inside (a int PRIMARY KEY)');
    await client.query('INSERT INTO inside VALUES ($1)', [1]);
    await client.query('SAVEPOINT s');
    const failed = await client.query('INSERT INTO inside VALUES (1)').catch((error) => error.code);
    await client.query('ROLLBACK TO SAVEPOINT s');
    const seen = await rows('SELECT * FROM inside');
    await client.query('ROLLBACK');
    return [failed, seen, await rows("SELECT to_regclass('inside') IS NULL AS gone")];
  });
  await run('cursor', async () => {
    const cursor = client.query(new Cursor('SELECT g FROM generate_series(1, $1::int) g', [5]));
    const got = [(await cursor.read(2)).length, (await cursor.read(2)).length, (await cursor.read(2)).length, (await cursor.read(2)).length];
    await cursor.close();
    return got;
  });
  await run('cursor that is closed early', async () => {
    const cursor = client.query(new Cursor('SELECT g FROM generate_series(1, 100000) g'));
    const got = await cursor.read(3);
    await cursor.close();
    return [got, await rows('SELECT 1 AS a')];
  });
  await run('copy in', async () => {
    const stream = client.query(from('COPY n (name, n) FROM STDIN'));
    await pipeline(Readable.from(['d\t4\n', 'e\t', '5\n']), stream);
    return stream.rowCount;
  });
  await run('copy in, csv', async () => {
    const stream = client.query(from('COPY n (name, n) FROM STDIN WITH (FORMAT csv, HEADER)'));
    await pipeline(Readable.from(['name,n\n"f, g",6\n']), stream);
    return stream.rowCount;
  });
  await run('copy out', async () => {
    let got = '';
    await pipeline(client.query(to('COPY (SELECT name, n FROM n ORDER BY id) TO STDOUT')), new Writable({ write(chunk, _encoding, done) { got += chunk; done(); } }));
    return got;
  });
  await run('copy out, binary', async () => {
    const got = [];
    await pipeline(client.query(to('COPY (SELECT id, name FROM n WHERE id < 3 ORDER BY id) TO STDOUT (FORMAT binary)')), new Writable({ write(chunk, _encoding, done) { got.push(chunk); done(); } }));
    return Buffer.concat(got);
  });
  await run('copy of a bad row', async () => {
    const stream = client.query(from('COPY n (n) FROM STDIN'));
    await pipeline(Readable.from(['x\n']), stream);
  });
  await run('after it', () => rows('SELECT count(*) FROM n'));
  await run('listen', async () => {
    const other = new Client(where);
    await other.connect();
    const heard = new Promise((resolve) => client.once('notification', (message) => resolve([message.channel, message.payload])));
    await client.query('LISTEN news');
    await other.query("SELECT pg_notify('news', 'hello')");
    const got = await heard;
    await other.end();
    await client.query('UNLISTEN *');
    return got;
  });
  await run('notice', async () => {
    const heard = new Promise((resolve) => client.once('notice', (notice) => resolve([notice.severity, notice.code])));
    await client.query('DROP TABLE IF EXISTS nobody');
    return heard;
  });
  await run('pool', async () => {
    const pool = new Pool({ ...where, max: 4 });
    const got = await Promise.all([...Array(12).keys()].map(async (n) => (await pool.query('SELECT $1::int * 2 AS n', [n])).rows[0].n));
    await pool.end();
    return got;
  });
  for (const [name, texts] of types) {
    for (const text of texts) {
      await run(`result ${name} ${text}`, () => rows(`SELECT $1::${name} AS v`, [text]));
      await run(`parameter ${name} ${text}`, async () => rows(`SELECT $1::${name} AS v`, [(await rows(`SELECT '${text.replaceAll("'", "''")}'::${name} AS v`))[0].v].map((value) => (name.startsWith('json') ? JSON.stringify(value) : value))));
      await run(`array ${name} ${text}`, () => rows(`SELECT ARRAY[$1, NULL]::${name}[] AS v`, [text]));
    }
    await run(`null ${name}`, () => rows(`SELECT $1::${name} AS v`, [null]));
  }
  await client.end();
}

main().catch((error) => { console.log(error); process.exit(1); });
