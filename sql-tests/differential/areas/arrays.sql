-- Arrays.
SELECT ARRAY[1, 2, 3], ARRAY['a', NULL, 'c d'], ARRAY[[1, 2], [3, 4]], ARRAY[]::int[], '{}'::int[], '{1,NULL,3}'::int[], '{"a,b","c\"d",NULL,"NULL",""}'::text[];
-- differs: it is accepted
SELECT ARRAY[];
SELECT ARRAY[1, 'x'];
SELECT ARRAY[[1, 2], [3]];
SELECT '{1,2'::int[];
SELECT '{a}'::int[];
SELECT ARRAY[1, 2.5], ARRAY[1, NULL], ARRAY[NULL, 'a'], pg_typeof(ARRAY[1, 2.5]), pg_typeof(ARRAY['a']), ARRAY[1::smallint, 2::bigint];
SELECT (ARRAY[1, 2, 3])[1], (ARRAY[1, 2, 3])[0], (ARRAY[1, 2, 3])[-1], (ARRAY[1, 2, 3])[NULL], (ARRAY[1, 2, 3])[2:3], (ARRAY[1, 2, 3])[:2], (ARRAY[1, 2, 3])[2:], (ARRAY[1, 2, 3])[3:2], (ARRAY[[1, 2], [3, 4]])[2][1], (ARRAY[[1, 2], [3, 4]])[1], (ARRAY[[1, 2], [3, 4]])[1:2][2:2];
SELECT array_length(ARRAY[1, 2, 3], 1), array_length('{}'::int[], 1), array_length(ARRAY[[1, 2], [3, 4]], 2), cardinality(ARRAY[[1, 2], [3, 4]]), cardinality('{}'::int[]), array_ndims(ARRAY[[1, 2]]), array_dims(ARRAY[[1, 2], [3, 4]]), array_lower(ARRAY[1], 1), array_upper(ARRAY[1, 2], 1);
SELECT ARRAY[1, 2] || ARRAY[3], ARRAY[1, 2] || 3, 0 || ARRAY[1], ARRAY[[1, 2]] || ARRAY[3, 4], ARRAY[1] || NULL::int[], ARRAY[1] || NULL::int, NULL::int[] || ARRAY[1];
SELECT array_append(ARRAY[1], 2), array_prepend(0, ARRAY[1]), array_cat(ARRAY[1], ARRAY[2]), array_remove(ARRAY[1, 2, 1, NULL], 1), array_remove(ARRAY[1, NULL], NULL), array_replace(ARRAY[1, 2, 1], 1, 9), array_position(ARRAY['a', 'b', 'a'], 'a'), array_position(ARRAY['a', 'b', 'a'], 'a', 2), array_positions(ARRAY[1, 2, 1], 1), array_position(ARRAY[1, NULL], NULL), array_fill(7, ARRAY[3]), trim_array(ARRAY[1, 2, 3], 2);
SELECT array_to_string(ARRAY[1, NULL, 3], ','), array_to_string(ARRAY[1, NULL, 3], ',', 'x'), string_to_array('a,b', ','), array_to_string(ARRAY[[1, 2], [3, 4]], '-');
SELECT ARRAY[1, 2, 3] @> ARRAY[2], ARRAY[1, 2] <@ ARRAY[1, 2, 3], ARRAY[1, 2] && ARRAY[2, 3], ARRAY[1, NULL] @> ARRAY[NULL]::int[], '{}'::int[] <@ ARRAY[1], ARRAY[1] && '{}';
-- refused 42883: not supported
SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1, 2] < ARRAY[1, 3], ARRAY[1, NULL] = ARRAY[1, NULL], ARRAY[1, 2] < ARRAY[1, 2, 0], ARRAY[1, NULL] > ARRAY[1, 5], ARRAY[[1, 2]] = ARRAY[1, 2], ARRAY[1] <> ARRAY[2];
SELECT 1 = ANY (ARRAY[1, 2]), 3 = ANY (ARRAY[1, NULL]), 3 <> ALL (ARRAY[1, 2]), 1 < ALL (ARRAY[2, NULL]), 1 = ANY (NULL::int[]), 1 = ANY ('{}'), 1 = ALL ('{}'), 'a' = ANY ('{a,b}');
-- refused 42883: the SQLSTATE differs
SELECT 1 = ANY (5);
SELECT unnest(ARRAY[1, 2, NULL]);
SELECT unnest(ARRAY[[1, 2], [3, 4]]);
SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY;
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['x', 'y', 'z']) AS t (a, b);
SELECT * FROM generate_subscripts(ARRAY[4, 5, 6], 1) s;
SELECT array_agg(x ORDER BY x DESC) FROM unnest(ARRAY[3, 1, 2]) x;
SELECT ARRAY(SELECT unnest(ARRAY[1, 2]) * 2);
SELECT ARRAY[1, 2]::text, ARRAY[1, 2]::text[], ARRAY['1', '2']::int[], '{1.5,2.25}'::numeric[], ARRAY[1.6, 2.4]::int[], ARRAY[true, false]::text, '{t,f}'::boolean[], ARRAY[date '2024-01-01']::text;
SELECT ARRAY['a']::int[];
CREATE TABLE arr (id int, xs int[], ts text[]);
INSERT INTO arr VALUES (1, '{1,2,3}', '{a,b}'), (2, ARRAY[4, NULL], '{}'), (3, NULL, NULL), (4, '{}', ARRAY['x y', '"']);
SELECT id, xs[1], xs[2:3], array_length(xs, 1), ts[1] FROM arr ORDER BY id;
SELECT id FROM arr WHERE 2 = ANY (xs);
SELECT id FROM arr WHERE NOT (2 = ANY (xs));
SELECT id FROM arr WHERE xs @> '{2}' OR ts && '{b}';
SELECT id, x FROM arr, unnest(xs) x ORDER BY id, x;
SELECT id, x, n FROM arr LEFT JOIN LATERAL unnest(ts) WITH ORDINALITY u (x, n) ON true ORDER BY id, n;
SELECT xs, count(*) FROM arr GROUP BY xs ORDER BY xs;
SELECT xs FROM arr ORDER BY xs DESC NULLS LAST;
SELECT DISTINCT unnest(xs) FROM arr ORDER BY 1;
UPDATE arr SET xs = array_append(xs, 9) WHERE id = 1;
UPDATE arr SET xs[1] = 100 WHERE id = 1;
SELECT xs FROM arr WHERE id = 1;
SELECT max(xs) FROM arr;
SELECT array_agg(xs) FROM arr WHERE id IN (1);
-- differs: it is accepted
SELECT xs[1][1], xs['a'] FROM arr;
SELECT '{ ab\c , \x, b\  ,\null }'::text[];
SELECT '{"1 2" x,3}'::text[];
SELECT '{a"b"}'::text[];
SELECT '{"a""b"}'::text[];
SELECT '{{"a b" , c },{ d,"e\"f"}}'::text[];
SELECT ROW(1, 2) = ANY (ARRAY[ROW(1, 2), ROW(3, 4)]), ROW(1, 3) = ANY (ARRAY[ROW(1, 2)]), ROW(1, 5) < ALL (ARRAY[ROW(2, 1), ROW(1, 6)]);
SELECT ARRAY[1, 2] = ANY (ARRAY[[1, 2]]);
