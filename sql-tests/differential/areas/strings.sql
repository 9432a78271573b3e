-- Texts: literals, functions, patterns.
SELECT 'first line' ' - next line' AS "no newline";
SELECT 'first line'
' - next line'
	' - third line' AS "Three lines to one";
SELECT U&'d\0061t\+000061' AS data;
SELECT U&'d!0061t!+000061' UESCAPE '!' AS data;
SELECT E'a\tb\\c\x41\u00e4\101';
SELECT $tag$it's $$ here$tag$;
SELECT 'it''s';
SELECT E'\\xDEADBEEF'::bytea, '\000\001'::bytea, 'De\\123dBeEf'::bytea;
SELECT CAST('ab' AS char(4)) || 'x', 'ab'::char(4) = 'ab', length('ab  '::char(4)), octet_length('ab'::char(4));
-- differs: "char" is a text
SELECT 'abcd'::varchar(2), 'abcd'::char(2), 'a'::char, 'abc'::"char";
SELECT TRIM(BOTH FROM '  bunch o blanks  ') = 'bunch o blanks', TRIM(LEADING FROM '  x '), TRIM(TRAILING FROM ' x  '), TRIM(BOTH 'x' FROM 'xxxxxsome Xsxxxxx');
SELECT trim('xyxtrimyyx', 'xyz'), btrim('xyxtrimyyx', 'xyz'), ltrim('zzzytest', 'xyz'), rtrim('testxxzx', 'xyz');
SELECT SUBSTRING('1234567890' FROM 3), SUBSTRING('1234567890' FROM 4 FOR 3), SUBSTRING('string' FROM 2 FOR 2147483646), SUBSTRING('string' FROM -10 FOR 2147483646);
SELECT SUBSTRING('string' FROM -10 FOR -2147483646);
SELECT SUBSTRING('abcdefg' SIMILAR 'a#"(b_d)#"%' ESCAPE '#'), SUBSTRING('abcdefg' FROM 'c.e'), SUBSTRING('abcdefg' FROM 'b(.*)f');
SELECT substr('hello', 2), substr('hello', 2, 3), substr('hello', -1, 3), substr('hello', 9), left('abcde', -2), right('abcde', 2), left('abc', 0);
SELECT POSITION('4' IN '1234567890'), POSITION('' IN 'abc'), strpos('high', 'ig'), strpos('abc', 'z');
SELECT OVERLAY('abcdef' PLACING '45' FROM 4), OVERLAY('yabadoo' PLACING 'daba' FROM 5 FOR 0), OVERLAY('babosa' PLACING 'ubb' FROM 2 FOR 4);
SELECT replace('abcdef', 'de', '45'), replace('yabadabadoo', 'ba', '123'), replace('abc', '', 'x'), translate('12345', '143', 'ax'), reverse('abcde');
SELECT split_part('joeuser@mydatabase', '@', 0);
SELECT split_part('joeuser@mydatabase', '@', 1), split_part('a,b,c', ',', -1), split_part('a,b,c', ',', 9), split_part('', '@', 1);
SELECT repeat('Pg', 4), repeat('Pg', -4), lpad('hi', 5, 'xy'), lpad('hi', -5, 'xy'), lpad('hello', 2), rpad('hi', 5, 'xy'), lpad('hi', 5, '');
-- differs: letters are those of Unicode
SELECT upper('äbc'), lower('ÀBC'), initcap('hi THOMAS o''neil foo-bar'), length('äöü'), char_length('日本'), octet_length('äöü'), bit_length('abc');
SELECT ascii('x'), ascii(''), ascii('ä'), chr(65), chr(8364);
-- differs: it is accepted
SELECT chr(0);
SELECT md5(''), md5('abc'), md5('a'::bytea), encode(sha256('abc'), 'hex');
SELECT to_hex(256), to_hex(-1), to_hex(9223372036854775807);
SELECT concat(1, 'a', NULL, true, 2.50, date '2024-01-02', ARRAY[1, 2]), concat_ws(',', 'a', NULL, 'b'), concat_ws(NULL, 'a'), concat();
SELECT format('Hello %s', 'World'), format('%1$s %3$s %2$s', 'a', 'b', 'c'), format('%I.%L', 'My Table', 'it''s'), format('%%'), format('|%10s|%-10s|', 'foo', 'bar'), format('%s', NULL), format('%L', NULL);
SELECT format('%s %s', 'one');
SELECT format('%x', 1);
SELECT quote_ident('foo bar'), quote_ident('abc'), quote_ident('select'), quote_literal('O''Reilly'), quote_literal(42.5), quote_nullable(NULL), quote_literal(E'a\\b');
SELECT 'hawkeye' LIKE 'h%', 'hawkeye' NOT LIKE 'H%ey%', 'indio' LIKE '_n_io', 'h%' LIKE 'h#%' ESCAPE '#', 'a_b' LIKE 'a\_b', 'ab' LIKE 'a\_b', NULL LIKE 'x', '' LIKE '', 'x' LIKE '';
-- differs: it is accepted
SELECT 'abc' LIKE 'a\';
-- differs: letters are those of Unicode
SELECT 'jack' ILIKE 'JA%', 'ÄB' ILIKE 'äb', 'foo' LIKE ANY (ARRAY['f%', 'b%']), 'foo' NOT LIKE ALL (ARRAY['x%', 'b%']);
SELECT 'abc' ~ 'abc', 'abc' ~ '^a', 'abc' ~* 'B.C', 'abc' !~ 'd', 'abc' SIMILAR TO 'a', 'abc' SIMILAR TO '%(b|d)%', 'abc' SIMILAR TO '(b|c)%';
SELECT regexp_replace('1112223333', E'(\\d{3})(\\d{3})(\\d{4})', E'(\\1) \\2-\\3'), regexp_replace('foobarrbazz', 'a..', 'X'), regexp_replace('foobarrbazz', 'a..', 'X', 'g'), regexp_replace('AAA', '^|$', 'Z', 'g'), regexp_replace('AAA aaa', 'A+', 'Z', 'gi');
SELECT regexp_replace('AAA aaa', 'A+', 'Z', 'z');
SELECT regexp_matches('foobarbequebaz', '(bar)(beque)'), regexp_match('foobarbequebaz', 'barbeque'), regexp_match('foobarbequebazilbarfbonk', '(b[^b]+)(x)?');
SELECT regexp_matches('foobarbequebazilbarfbonk', '(b[^b]+)(b[^b]+)', 'g');
SELECT regexp_split_to_array('the quick brown', '\s+'), regexp_split_to_array('abc', ''), regexp_split_to_array('', 'x');
SELECT * FROM regexp_split_to_table('hello world', '\s+') AS foo;
SELECT regexp_count('123123123', '\d{3}'), regexp_instr('foobarbaz', 'ba.', 1, 2), regexp_like('abc', 'B', 'i'), regexp_substr('foobarbaz', 'ba.', 1, 2);
SELECT string_to_array('xx~~yy~~zz', '~~', 'yy'), string_to_array('abc', NULL), string_to_array('', ','), string_to_array(NULL, ','), array_to_string(ARRAY[1, NULL, 3], ',', '*');
SELECT * FROM string_to_table('1|2|3', '|');
SELECT starts_with('alphabet', 'alph'), 'alphabet' ^@ 'bet';
-- differs: it is accepted
SELECT 'a' || 'b', 'a' || NULL, 'a' || 1, 1 || 'a', 'x' || true, 'x' || 1.50, 'x' || date '2024-01-02', 'x' || ARRAY['y'], ARRAY[1] || 2;
SELECT 1 || 2;
SELECT 'a' < 'B', 'a' < 'b', '' < 'a', 'ab' < 'abc', 'a ' = 'a', 'a '::char(2) = 'a'::char(2);
SELECT encode('\x1234', 'hex'), encode('abc', 'base64'), decode('MTIz', 'base64'), decode('zz', 'hex');
-- differs: it is accepted
SELECT encode('a\001b', 'escape'), length('\x0102'::bytea), get_byte('\x0102', 1), set_byte('\x0102', 0, 255), get_bit('\x01', 0), '\x01'::bytea || '\x02', substring('\x010203'::bytea FROM 2 FOR 1), position('\x02' IN '\x0102'::bytea);
-- refused 0A000: the one encoding is UTF8
SELECT convert_from('\xc3a4', 'UTF8'), convert_to('ä', 'LATIN1'), convert_from('\xe4', 'LATIN1');
SELECT unistr('d\0061ta'), normalize(U&'a\0308'), 'ä' IS NORMALIZED;
SELECT parse_ident('Schemax.Tabley'), parse_ident('"SchemaX"."TableY"');
SELECT 'x'::text COLLATE "C" < 'X' COLLATE "C";
SELECT upper(1);
SELECT length(1);
-- refused 42883: the SQLSTATE differs
SELECT 'a' + 'b';
SELECT nope('a');
SELECT ROW(1, 'a')::text, ROW(1, NULL, 'x y', 'a"b', '(')::text, 'r=' || ROW(1, true)::text;
