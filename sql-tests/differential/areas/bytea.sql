-- Bytes and bits.
SELECT get_byte('\x1234'::bytea, 0), get_byte('\x1234'::bytea, 1), set_byte('\x1234'::bytea, 1, 64), get_bit('\x1234'::bytea, 1), get_bit('\x1234'::bytea, 10), set_bit('\x1234'::bytea, 0, 1), bit_count('\x1234'::bytea);
SELECT get_byte('\x1234'::bytea, 2);
SELECT get_byte('\x1234'::bytea, -1);
SELECT get_bit('\x12'::bytea, 8);
SELECT set_bit('\x12'::bytea, 0, 2);
SELECT set_byte('\x12'::bytea, 0, 300), get_byte(NULL, 0), bit_count(''::bytea);
-- Ends, places and parts.
SELECT btrim('\x001234001200'::bytea, '\x00'), ltrim('\x00120012'::bytea, '\x0012'), rtrim('\x1200'::bytea, '\x00'), btrim('\x0000'::bytea, '\x00'), btrim('\x12'::bytea, ''), btrim('\x12'::bytea, NULL);
SELECT trim('\x00'::bytea FROM '\x001200'::bytea), trim(LEADING '\x00'::bytea FROM '\x001200'::bytea), trim(TRAILING '\x00'::bytea FROM '\x001200'::bytea), trim(BOTH '\x0012'::bytea FROM '\x00123412'::bytea);
SELECT position('\x34'::bytea IN '\x123456'::bytea), position('\x99'::bytea IN '\x12'::bytea), position(''::bytea IN '\x12'::bytea), position('\x3456' IN '\x123456'::bytea);
SELECT overlay('\x123456'::bytea PLACING '\xff'::bytea FROM 2), overlay('\x123456'::bytea PLACING '\xffee'::bytea FROM 2 FOR 1), overlay('\x12'::bytea PLACING '\xff'::bytea FROM 9), overlay('\x1234'::bytea PLACING ''::bytea FROM 1 FOR 2), overlay('\x1234'::bytea PLACING '\x56' FROM 2 FOR 0);
SELECT overlay('\x1234'::bytea PLACING '\x56'::bytea FROM 0);
SELECT btrim('\x1234'::bytea, 'a'::text);
SELECT btrim('  x '), trim('x' FROM 'xax'), position('b' IN 'abc'), overlay('Txxxxas' PLACING 'hom' FROM 2 FOR 4), strpos('high', 'ig');
CREATE TABLE blobs (id int, b bytea);
INSERT INTO blobs VALUES (1, '\x000102'), (2, '\x0000'), (3, NULL);
SELECT id, btrim(b, '\x00'), position('\x01' IN b), overlay(b PLACING '\xaa' FROM 1), length(ltrim(b, '\x00')) FROM blobs ORDER BY id;
