-- Bytes and bits.
SELECT get_byte('\x1234'::bytea, 0), get_byte('\x1234'::bytea, 1), set_byte('\x1234'::bytea, 1, 64), get_bit('\x1234'::bytea, 1), get_bit('\x1234'::bytea, 10), set_bit('\x1234'::bytea, 0, 1), bit_count('\x1234'::bytea);
SELECT get_byte('\x1234'::bytea, 2);
SELECT get_byte('\x1234'::bytea, -1);
SELECT get_bit('\x12'::bytea, 8);
SELECT set_bit('\x12'::bytea, 0, 2);
SELECT set_byte('\x12'::bytea, 0, 300), get_byte(NULL, 0), bit_count(''::bytea);
