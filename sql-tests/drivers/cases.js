// What the scripts for drivers of Node share: each case prints one line, its name and what came of it.

exports.where = {
  host: process.env.DRIVERS_HOST,
  port: Number(process.env.DRIVERS_PORT),
  user: 'millrace',
  database: 'millrace',
  password: 'x',
};

// A type's name, and values of it as texts.
exports.types = [
  ['boolean', ['true', 'false']],
  ['smallint', ['-32768', '7']],
  ['integer', ['-2147483648', '7']],
  ['bigint', ['-9223372036854775808', '7']],
  ['real', ['1.5', 'Infinity', 'NaN']],
  ['double precision', ['-0.1', '1e300', '-Infinity']],
  ['numeric', ['0', '1.50', '-12345678901234567890.123456789']],
  ['numeric(10,2)', ['1.50']],
  ['text', ['', 'ä€😀', 'it\'s "so"']],
  ['varchar(5)', ['abc']],
  ['char(4)', ['ab']],
  ['bytea', ['\\x', '\\x00ff10']],
  ['date', ['2024-02-29']],
  ['time', ['23:59:59.999999']],
  ['timestamp', ['2024-02-29 12:34:56.789']],
  ['timestamptz', ['2024-02-29 12:34:56.789+00']],
  ['interval', ['1 day', '1 year 2 mons 3 days 04:05:06.789']],
  ['uuid', ['01234567-89ab-cdef-0123-456789abcdef']],
  ['json', ['{"a": [1, 2.5, null]}']],
  ['jsonb', ['{"a": [1, 2.5, null]}']],
];

function shown(value) {
  if (value === null || value === undefined) return 'null';
  if (Buffer.isBuffer(value)) return `bytes ${value.toString('hex')}`;
  if (value instanceof Date) return `Date ${value.toISOString()}`;
  if (typeof value === 'bigint' || typeof value === 'number') return `${typeof value} ${value}`;
  if (Array.isArray(value)) return `[${value.map(shown).join(', ')}]`;
  if (typeof value === 'object') return `{${Object.entries(value).map(([key, item]) => `${key}: ${shown(item)}`).join(', ')}}`;
  return JSON.stringify(value);
}

exports.run = async (name, work) => {
  let outcome;
  try {
    outcome = shown(await work());
  } catch (error) {
    if (process.env.DRIVERS_SHOW) console.log(`  # ${error.message}`.replaceAll('\n', '\\n'));
    outcome = `error ${error.code ?? error.name}`;
  }
  console.log(`${name} => ${outcome}`.replaceAll('\n', '\\n'));
};
