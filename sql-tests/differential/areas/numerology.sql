-- Numbers: literals, ranges, operators, functions, rounding.
SELECT 1, -1, 2147483647, 2147483648, 9223372036854775807, 9223372036854775808, 1.5, .5, 5., 1e3, 1.5e-3;
-- differs: sums of bigint and averages of integers have other types
SELECT pg_typeof(1), pg_typeof(2147483648), pg_typeof(9223372036854775808), pg_typeof(1.5), pg_typeof(1e3), pg_typeof('1');
SELECT -2147483648, -9223372036854775808, - 5, + 5, -(-5);
SELECT 32767::smallint, (-32768)::smallint, '2147483647'::int, '  7  '::int, '-0'::int;
SELECT 32768::smallint;
SELECT 2147483648::int;
SELECT '9223372036854775808'::bigint;
SELECT ''::int;
SELECT '1.5'::int;
SELECT 'abc'::int;
SELECT '1e5'::int;
SELECT 2147483647 + 1;
SELECT 32767::smallint + 1::smallint;
SELECT -2147483648 - 1;
SELECT 9223372036854775807 + 1;
SELECT 2147483647 * 2;
SELECT (-2147483648)::int / -1;
SELECT abs((-2147483648)::int);
SELECT -((-2147483648)::int);
-- differs: a quotient has 16 digits after the point
SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3, 7 % -3, 7.5 % 2, 7 / 2.0, 1 / 3.0, 2 / 3::numeric;
SELECT 1 / 0;
SELECT 1 % 0;
SELECT 1.0 / 0;
SELECT 1::float8 / 0;
SELECT 0::float8 / 0;
SELECT 2 ^ 3, 2 ^ 0.5, 2::numeric ^ 3, (-8) ^ (1 / 3.0);
SELECT 2 ^ -1, 0 ^ 0, 0 ^ -1;
-- differs: these functions of numerics give double precision
SELECT 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 4, -16 >> 2, @ -5, |/ 25.0, ||/ 27.0;
SELECT 0.5::int, 1.5::int, 2.5::int, -0.5::int, -1.5::int, 0.5::float8::int, 1.5::float8::int, 2.5::float8::int;
SELECT round(0.5), round(1.5), round(2.5), round(-2.5), round(2.5::float8), round(3.5::float8), round(1234.5678, 2), round(1234.5678, -2), round(-1.005, 2);
SELECT trunc(1.9), trunc(-1.9), trunc(1234.5678, 2), trunc(1234.5678, -2), ceil(1.1), floor(-1.1), ceil(-1.1::float8), sign(-2.5), sign(0), sign(3::float8);
SELECT 1.10 + 2.2, 1.10 * 2.20, 0.1 + 0.2, 1.00, 100::numeric, 1.5::numeric(4, 2), 99.995::numeric(4, 1);
SELECT 999.99::numeric(4, 2);
SELECT 'NaN'::float8, 'Infinity'::float8, '-inf'::float8, 'nan'::float4, '1e308'::float8 * 10 > 1;
SELECT '1e400'::float8;
SELECT '1e-400'::float8;
SELECT '1e39'::float4;
SELECT 1e308::float8 * 10;
SELECT 'NaN'::float8 = 'NaN'::float8, 'NaN'::float8 > 'Infinity'::float8, 'Infinity'::float8 > 1e308, 0::float8 = '-0'::float8;
SELECT 0.1::float4, 0.1::float8, 0.1::float4::float8, 1e15::float8, 1e16::float8, 123456789012345678::float8, 1e-5::float8, 0.0001::float8, 1e6::float4, 16777217::float4, '-0'::float8;
SELECT 1::float8 / 3, 1::float4 / 3, 2::float4 / 3::float8, 100::float8, 1.0::float8;
-- differs: these functions of numerics give double precision
SELECT sqrt(2), sqrt(4.0), cbrt(27.0), exp(0.0), exp(1::float8), ln(1::float8), log(100::float8), log(2.0, 64.0), power(2, 10), power(2.0, 3.0), pi();
SELECT sqrt(-1);
SELECT ln(0);
SELECT ln(-1::float8);
SELECT power(0, -1);
SELECT power(-8, 0.5);
SELECT mod(5, 3), mod(-5, 3), div(9, 4), div(-9, 4), gcd(1071, 462), lcm(1071, 462), factorial(5), width_bucket(5.35, 0.024, 10.06, 5), scale(8.41), min_scale(8.4100), trim_scale(8.4100);
SELECT sin(0), cos(0), tan(0), asin(0), acos(1), atan(0), atan2(0, 1), degrees(pi()), radians(180), sind(30), cosd(60), tand(45);
SELECT asin(2);
-- differs: greatest of numerics has as many digits as the widest
SELECT greatest(1, 2.5, 3), least(1, NULL, -1), greatest(NULL, NULL), greatest(1, 'NaN'::float8), least('a', 'b');
SELECT 1 < 2, 1.0 = 1, 1 = 1.0::float8, 1::smallint < 2::bigint, 0.1::float4 = 0.1::float8, 1 <> 2, 1 != 2;
SELECT 1 BETWEEN 0 AND 2, 1 BETWEEN SYMMETRIC 2 AND 0, 5 NOT BETWEEN 1 AND 3, 1 IN (1, 2), 1 NOT IN (2, NULL), NULL IN (1);
SELECT 1 IS DISTINCT FROM NULL, NULL IS DISTINCT FROM NULL, NULL IS NOT DISTINCT FROM NULL, 1 IS NOT DISTINCT FROM 1;
SELECT to_char(1234.5, '9,999.99'), to_char(-1, '999'), to_char(0.5, '0.99'), to_char(12, 'FM000'), to_char(485, 'RN'), to_char(1234567, '9.99EEEE'), to_char(12.45, '99V9'), to_char(-12, '99MI'), to_char(-12, '99PR'), to_char(12, 'S99');
SELECT to_number('12,454.8-', '99G999D9S'), to_number('-34,338,492', '99G999G999');
SELECT 1::boolean, 0::boolean, true::int, 't'::boolean, 'off'::boolean, 'yes'::boolean;
SELECT 2.0::boolean;
SELECT 'maybe'::boolean;
SELECT 1 = true;
SELECT true AND NULL, false AND NULL, true OR NULL, false OR NULL, NOT NULL, true IS TRUE, NULL IS UNKNOWN, false IS NOT TRUE;
SELECT num_nulls(1, NULL, 2), num_nonnulls(1, NULL, 2);
SELECT random() BETWEEN 0 AND 1;
-- refused 22003: not supported
SELECT 12345678901234567890 * 12345678901234567;
SELECT 0.000001::numeric * 0.000001;
SELECT 1 + '2', '3' * 4, 1.5 + '2.5', '10' > 9;
SELECT 'x' > 9;
SELECT 1 + true;
SELECT 1 + now();
SELECT 1 AS one, 2 AS "Two", 3 three, 4 "select";
SELECT 0x1F;
SELECT 1_000;
SELECT 123abc;

-- A word behind the digits of a number is no alias.
SELECT 0b11 AS x;
SELECT 0o17 AS x;
SELECT 1.5e;
SELECT 1.5x FROM (VALUES (1)) t(x);
SELECT 1 abc;
SELECT 1AS x;
SELECT cotd(180), cotd(0), cotd(90), cotd(45), cotd(-45), cotd(135);
