-- json and jsonb.
SELECT '{"b": 1, "a": [1, 2.50, null], "a": true}'::jsonb, '{"b": 1,  "a": 2}'::json, '"x"'::jsonb, 'null'::jsonb, '1.50'::jsonb, '1e2'::jsonb, '-0'::jsonb, '[]'::jsonb, '{}'::jsonb;
SELECT '{a: 1}'::jsonb;
SELECT '[1,]'::json;
SELECT ''::jsonb;
SELECT '"\u00e4\n\ud83d\ude00"'::jsonb;
SELECT '"\ud83d"'::jsonb;
SELECT '{"a": {"b": [10, 20]}}'::jsonb -> 'a', '{"a": {"b": [10, 20]}}'::jsonb -> 'a' -> 'b' -> 1, '{"a": "x"}'::jsonb ->> 'a', '[1, 2]'::jsonb -> -1, '[1, 2]'::jsonb -> 5, '{"a": null}'::jsonb ->> 'a', '{"a": null}'::jsonb -> 'a';
SELECT '{"a": {"b": [10, 20]}}'::jsonb #> '{a,b,0}', '{"a": {"b": [10, 20]}}'::jsonb #>> '{a,b}', '{"a": 1}'::jsonb #> '{}', '{"a": 1}'::jsonb #> '{x,y}';
SELECT ('{"a": {"b": [10, 20]}}'::jsonb)['a']['b'][1], ('[1, 2]'::jsonb)[0], ('{"a": 1}'::jsonb)['x'], ('{"0": "z"}'::jsonb)['0'];
SELECT '{"a": 1, "b": 2}'::jsonb @> '{"a": 1}', '[1, 2, 3]'::jsonb @> '[3, 1]', '[1, [2]]'::jsonb @> '[2]', '{"a": 1}'::jsonb <@ '{"a": 1, "b": 2}', '[1]'::jsonb @> '1', '1'::jsonb @> '[1]';
SELECT '{"a": 1}'::jsonb ? 'a', '["a", "b"]'::jsonb ? 'b', '{"a": 1}'::jsonb ?| ARRAY['x', 'a'], '{"a": 1, "b": 2}'::jsonb ?& ARRAY['a', 'b'], '"a"'::jsonb ? 'a';
SELECT '{"a": 1}'::jsonb || '{"a": 2, "b": 3}', '[1]'::jsonb || '[2]', '[1]'::jsonb || '2', '{"a": 1}'::jsonb || '[2]', '1'::jsonb || '2';
SELECT '{"a": 1, "b": 2}'::jsonb - 'a', '["a", "b", "a"]'::jsonb - 'a', '[1, 2, 3]'::jsonb - 1, '[1, 2, 3]'::jsonb - -1, '{"a": 1, "b": 2, "c": 3}'::jsonb - ARRAY['a', 'c'], '{"a": {"b": 1}}'::jsonb #- '{a,b}';
SELECT '1'::jsonb - 'a';
SELECT '{"a": 1}'::jsonb - 1;
SELECT jsonb_typeof('{}'), jsonb_typeof('[]'), jsonb_typeof('1'), jsonb_typeof('"x"'), jsonb_typeof('null'), jsonb_typeof('true'), json_typeof('1'), jsonb_typeof(NULL);
SELECT jsonb_array_length('[1, 2]'), json_array_length('[]');
SELECT jsonb_array_length('{}');
SELECT * FROM jsonb_each('{"a": 1, "b": "x"}');
SELECT * FROM jsonb_each_text('{"a": 1, "b": null}');
SELECT * FROM jsonb_object_keys('{"b": 1, "a": 2}');
SELECT * FROM jsonb_array_elements('[1, "a", null, [2]]');
SELECT * FROM jsonb_array_elements_text('[1, "a", null, [2]]');
SELECT value, ordinality FROM jsonb_array_elements('["x", "y"]') WITH ORDINALITY;
SELECT jsonb_array_elements('1');
-- refused 0A000: columns of arrays
SELECT * FROM jsonb_to_record('{"a": 1, "b": "x", "c": [1, 2]}') AS x(a int, b text, c int[]);
SELECT * FROM jsonb_to_recordset('[{"a": 1, "b": "x"}, {"a": "2"}]') AS x(a int, b text);
SELECT to_jsonb(1), to_jsonb('x'::text), to_jsonb(true), to_jsonb(1.50), to_jsonb(ARRAY[1, NULL]), to_jsonb(date '2024-01-02'), to_jsonb(timestamp '2024-01-02 03:04:05'), to_jsonb(NULL::int), to_jsonb(ROW(1, 'a'));
-- differs: json is shown as jsonb
SELECT to_json('a"b'::text), array_to_json(ARRAY[[1, 2], [3, 4]]), row_to_json(ROW(1, 'x', NULL));
-- differs: functions of json give jsonb
SELECT jsonb_build_object('a', 1, 'b', NULL, 'c', ARRAY[1, 2]), jsonb_build_array(1, 'x', NULL, true), json_build_object('a', 1.5), jsonb_build_object(), jsonb_build_array();
SELECT jsonb_build_object('a');
SELECT jsonb_build_object(NULL, 1);
SELECT jsonb_object('{a, 1, b, 2}'), jsonb_object('{a, b}', '{1, 2}');
SELECT jsonb_set('{"a": {"b": 1}}', '{a,b}', '2'), jsonb_set('{"a": 1}', '{b}', '2'), jsonb_set('{"a": 1}', '{b}', '2', false), jsonb_set('[1, 2]', '{-1}', '9'), jsonb_insert('[1, 2]', '{1}', '9'), jsonb_insert('[1, 2]', '{1}', '9', true);
SELECT jsonb_strip_nulls('{"a": null, "b": {"c": null}, "d": [null]}'), jsonb_pretty('{"a": [1, 2]}');
SELECT jsonb_path_query('{"a": [1, 2, 3]}', '$.a[*] ? (@ > 1)');
SELECT jsonb_path_exists('{"a": 1}', '$.a'), jsonb_path_query_array('[1, 2]', '$[*] + 1'), jsonb_path_query_first('[5, 6]', '$[*]'), jsonb_path_match('{"a": 1}', '$.a == 1'), '{"a": 1}'::jsonb @? '$.b', '{"a": 1}'::jsonb @@ '$.a > 0';
SELECT jsonb_extract_path('{"a": {"b": 1}}', 'a', 'b'), jsonb_extract_path_text('{"a": {"b": "x"}}', 'a', 'b'), json_extract_path('{"a": [1]}', 'a', '0');
SELECT ('{"a": 1}'::jsonb -> 'a')::int, ('{"a": 1.7}'::jsonb -> 'a')::numeric, ('true'::jsonb)::boolean, ('"5"'::jsonb)::text;
-- refused 22P02: the SQLSTATE differs
SELECT ('"5"'::jsonb)::int;
-- refused 22P02: the SQLSTATE differs
SELECT 'null'::jsonb::int;
SELECT '1'::jsonb = '1.0'::jsonb, '{"a":1,"b":2}'::jsonb = '{"b":2,"a":1}'::jsonb, '[1]'::jsonb < '[2]'::jsonb, '{}'::jsonb > '[]'::jsonb, 'null'::jsonb < '1'::jsonb, '"a"'::jsonb < '1'::jsonb;
-- differs: it is accepted
SELECT '{"a": 1}'::json = '{"a": 1}'::json;
SELECT x FROM (VALUES ('{"a": 2}'::jsonb), ('[1]'), ('1'), ('"a"'), ('null'), ('true'), ('{}'), ('[]')) v (x) ORDER BY x;
SELECT x, count(*) FROM (VALUES ('1'::jsonb), ('1.0'), ('"1"')) v (x) GROUP BY x ORDER BY count(*);
CREATE TABLE docs (id int PRIMARY KEY, d jsonb);
INSERT INTO docs VALUES (1, '{"name": "a", "tags": ["x", "y"], "n": 5}'), (2, '{"name": "b", "tags": [], "n": null}'), (3, NULL);
SELECT id, d ->> 'name', (d ->> 'n')::int, d -> 'tags' ->> 0 FROM docs ORDER BY id;
SELECT id, t FROM docs, jsonb_array_elements_text(d -> 'tags') t ORDER BY 1, 2;
SELECT id FROM docs WHERE d @> '{"tags": ["x"]}';
SELECT id FROM docs WHERE d ->> 'n' IS NULL ORDER BY id;
SELECT jsonb_agg(d ->> 'name' ORDER BY id), jsonb_object_agg(id, d -> 'n') FROM docs WHERE d IS NOT NULL;
UPDATE docs SET d = jsonb_set(d, '{n}', '7') WHERE id = 2;
SELECT d -> 'n', d['n'], d['tags'] FROM docs ORDER BY id;
SELECT jsonb_insert('{"a": {"b": [1]}}', '{a,b,0}', '"x"'), jsonb_insert('{"a": 1}', '{b}', '2'), jsonb_insert('[1]', '{-5}', '0'), jsonb_insert('[1]', '{5}', '0');
SELECT jsonb_insert('{"a": 1}', '{a}', '2');
SELECT * FROM jsonb_array_elements_text('[1, "a", null]') WITH ORDINALITY;
SELECT k, n FROM jsonb_object_keys('{"x": 1, "y": 2}') WITH ORDINALITY AS o (k, n) ORDER BY n;
SELECT * FROM jsonb_to_record('{"a": 1, "b": "x", "c": {"d": 2}, "e": null}') AS t (a int, b text, c jsonb, e date);
SELECT * FROM json_to_recordset('[{"a": 1.5, "Z": "x"}, {"a": 2}]') AS t (a numeric, "Z" text) ORDER BY a DESC;
SELECT * FROM jsonb_to_record('{"a": 1}');
SELECT * FROM jsonb_to_record('{"a": "x"}') AS t (a int);
-- NULL in a path.
SELECT '{"a": {"b": 1}}'::jsonb #> ARRAY['a', NULL], '{"a": {"b": 1}}'::jsonb #>> ARRAY['a', NULL], '{"a": 1}'::json #> '{NULL}', '{"a": 1}'::jsonb #> '{}', '{"a": {"b": 1}}'::jsonb #>> '{a,b}';
SELECT '{"a": {"b": 1}}'::jsonb #- ARRAY['a', NULL];
SELECT jsonb_set('{"a": {"b": 1}}', ARRAY['a', NULL], '2');
SELECT jsonb_insert('{"a": {"b": 1}}', ARRAY[NULL, 'a'], '2');
SELECT jsonb_set('{"a": 1}', ARRAY['x', NULL], '2'), '{"a": 1}'::jsonb #- ARRAY['x', NULL];
-- NULL as the new value.
SELECT jsonb_set_lax('{"a": 1}', '{a}', NULL), jsonb_set_lax('{"a": 1}', '{b}', NULL), jsonb_set_lax('{"a": 1}', '{b}', NULL, false), jsonb_set_lax('{"a": 1}', '{a}', NULL, true, 'delete_key'), jsonb_set_lax('{"a": 1}', '{a}', NULL, true, 'return_target'), jsonb_set_lax('{"a": 1}', '{a}', NULL, true, 'use_json_null');
SELECT jsonb_set_lax('{"a": 1}', '{b}', '2'), jsonb_set_lax('{"a": 1}', '{b}', '2', false), jsonb_set_lax('[1, 2]', '{1}', NULL, true, 'delete_key'), jsonb_set_lax(NULL, '{a}', '1'), jsonb_set_lax('{}', NULL, '1'), jsonb_set_lax('{"a": 1}', '{a}', '2', NULL);
SELECT jsonb_set_lax('{"a": 1}', '{a}', NULL, true, 'raise_exception');
SELECT jsonb_set_lax('{"a": 1}', '{a}', NULL, true, 'nothing');
SELECT jsonb_set_lax('{"a": 1}', '{a}', NULL, true, NULL);
-- Subscripts, read and assigned.
CREATE TABLE sub (id int PRIMARY KEY, j jsonb);
INSERT INTO sub VALUES (1, '{"a": {"b": 1}}'), (2, '{}'), (3, NULL), (4, '[1, 2]'), (5, '7'), (6, '{"a": null}');
SELECT id, j['a'], j['a']['b'], (j)[0], j[-1], j['x']['y'] FROM sub ORDER BY id;
UPDATE sub SET j['a']['b'] = '2' WHERE id < 3;
UPDATE sub SET j['a'] = '3' WHERE id = 3;
UPDATE sub SET j[4] = '"x"' WHERE id = 4;
SELECT * FROM sub ORDER BY id;
UPDATE sub SET j[-1] = '"last"', j[0] = NULL WHERE id = 4;
UPDATE sub SET j['z'][2]['k'] = to_jsonb(id) WHERE id IN (1, 2);
UPDATE sub SET j['q'] = (SELECT jsonb_agg(x) FROM generate_series(1, 3) x) WHERE id = 3 RETURNING j, j['q'][1];
SELECT * FROM sub ORDER BY id;
UPDATE sub SET j['x'] = '3' WHERE id = 4;
UPDATE sub SET j[-9] = '3' WHERE id = 4;
UPDATE sub SET j['a'] = '3' WHERE id = 5;
UPDATE sub SET j['a']['b'] = '3' WHERE id = 6;
UPDATE sub SET j['a']['b']['c'] = '3' WHERE id = 1;
UPDATE sub SET j[NULL] = '3' WHERE id = 1;
UPDATE sub SET j['a'] = 'no json' WHERE id = 1;
UPDATE sub SET j['a'] = 5 WHERE id = 1;
UPDATE sub SET j[1:2] = '5' WHERE id = 1;
UPDATE sub SET j = NULL WHERE id < 3;
UPDATE sub SET j[2] = '1' WHERE id = 1;
UPDATE sub SET j['2'] = '1' WHERE id = 2;
SELECT * FROM sub ORDER BY id;
-- The functions of operators.
SELECT jsonb_object_field('{"a": {"b": 1}}', 'a'), jsonb_object_field_text('{"a": "x"}', 'a'), jsonb_array_element('[1, [2]]', 1), jsonb_array_element_text('["x"]', 0), jsonb_array_element('[1, 2]', -1), jsonb_object_field('{"a": 1}', 'z');
SELECT pg_typeof(json_object_field('{"a": 1}', 'a')), pg_typeof(jsonb_object_field('{"a": 1}', 'a'));
