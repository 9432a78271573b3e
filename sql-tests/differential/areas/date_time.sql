-- Dates, times, intervals.
SELECT date '2024-02-29', date 'January 8, 1999', date '1999-01-08', date '1/8/1999', date '19990108', date '990108', date '1999.008', date 'J2451187', date 'epoch', date 'infinity';
SELECT date '2023-02-29';
SELECT date '2024-13-01';
SELECT date 'x';
-- refused 22007: not supported
SELECT date '0044-03-15 BC', date '9999-12-31', '5874897-12-31'::date;
SELECT time '04:05:06.789', time '04:05', time '040506', time '04:05 AM', time '04:05 PM', time '24:00', time 'allballs', '1:2:3'::time, time '12:34:56.789'::time(1);
SELECT time '25:00';
SELECT time '12:60';
SELECT timestamp '2024-02-29 12:34:56.789', timestamp '2024-02-29', timestamp '2024-02-29T12:34:56', timestamp 'epoch', timestamp '-infinity', timestamp 'Jan 1 4:30 2020', timestamp '2024-02-29 12:34:56+05';
SELECT timestamptz '2024-02-29 12:34:56+05', timestamptz '2024-02-29 12:34:56 America/New_York', timestamptz '2024-07-01 12:00 EST', timestamptz '2024-02-29 12:00Z';
SELECT timestamptz '2024-02-29 12:00 Nowhere/None';
SELECT timestamp '2024-02-30';
SELECT timestamp(0) '2024-01-01 00:00:00.5', timestamp(2) '2024-01-01 00:00:00.556', '2024-01-01 12:00'::timestamp(3);
SELECT interval '1 year 2 months 3 days 4 hours 5 minutes 6.5 seconds', interval '1-2', interval '3 4:05:06', interval 'P1Y2M3DT4H5M6S', interval '1 day ago', interval '-1 day +2 hours', interval '1.5 days', interval '1.5 months', interval '2 weeks', interval '90 minutes', interval '100:00';
SELECT interval '1' year, interval '90' minute, interval '1-2' year to month, interval '1 2:03' day to minute, interval '1.567' second(1);
SELECT interval 'x';
SELECT interval '1 day' * 1.5, interval '1 month' / 2, 2 * interval '1 hour', -interval '1 day', interval '1 day' + interval '1 hour', interval '1 month' - interval '1 day';
SELECT interval '1 day' = interval '24 hours', interval '1 month' = interval '30 days', interval '1 day' > interval '23 hours', interval '1 month' > interval '29 days';
SELECT date '2024-01-31' + 1, date '2024-03-01' - date '2024-02-01', date '2024-01-31' + interval '1 month', date '2024-01-31' - 7, date '2024-01-01' + time '12:00', time '12:00' + interval '13 hours', time '12:00' - time '10:30';
SELECT timestamp '2024-01-31 12:00' + interval '1 month', timestamp '2024-03-31' - interval '1 month', timestamp '2024-03-01' - timestamp '2024-02-01', timestamp '2024-03-01 12:00' - timestamp '2024-02-28 13:00';
SELECT age(timestamp '2024-03-01', timestamp '2023-01-31'), age(date '2001-04-10', date '1957-06-13');
SELECT date_trunc('hour', timestamp '2001-02-16 20:38:40'), date_trunc('week', timestamp '2024-02-29 12:00'), date_trunc('quarter', timestamp '2024-05-05'), date_trunc('decade', timestamp '2024-05-05'), date_trunc('century', timestamp '2024-05-05'), date_trunc('day', interval '3 days 02:47:33');
SELECT date_trunc('nope', timestamp '2001-02-16 20:38:40');
SELECT date_bin('15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01'), date_bin('1 day', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01 02:30');
SELECT extract(year FROM date '2024-02-29'), extract(month FROM date '2024-02-29'), extract(day FROM date '2024-02-29'), extract(dow FROM date '2024-02-25'), extract(isodow FROM date '2024-02-25'), extract(doy FROM date '2024-12-31'), extract(week FROM date '2021-01-03'), extract(isoyear FROM date '2021-01-03'), extract(quarter FROM date '2024-05-05'), extract(century FROM date '2000-12-31'), extract(millennium FROM date '2001-01-01'), extract(decade FROM date '1999-01-01'), extract(epoch FROM date '1970-01-02'), extract(julian FROM date '2000-01-01');
SELECT extract(hour FROM timestamp '2001-02-16 20:38:40.12'), extract(second FROM timestamp '2001-02-16 20:38:40.12'), extract(milliseconds FROM time '17:12:28.5'), extract(microseconds FROM time '17:12:28.5'), extract(epoch FROM timestamp '2001-02-16 20:38:40.12'), extract(epoch FROM interval '1 month 1 day'), extract(day FROM interval '40 days 1 minute'), extract(timezone FROM timestamptz '2024-01-01 00:00+00');
SELECT extract(hour FROM date '2024-01-01');
SELECT extract(nope FROM timestamp '2024-01-01');
SELECT date_part('hour', timestamp '2001-02-16 20:38:40'), date_part('month', interval '2 years 3 months'), pg_typeof(date_part('hour', now())), pg_typeof(extract(hour FROM now()));
SELECT to_char(timestamp '2024-02-09 15:04:05.678', 'YYYY-MM-DD HH24:MI:SS.MS'), to_char(timestamp '2024-02-09 15:04:05', 'Dy, DD Mon YYYY HH12:MI AM'), to_char(timestamp '2024-02-09', 'FMDay FMMonth DDth "of" Q, IYYY-IW, DDD, J'), to_char(interval '15h 2m 12s', 'HH24:MI:SS'), to_char(date '2024-02-09', 'yy');
SELECT to_date('05 Dec 2000', 'DD Mon YYYY'), to_timestamp('05 Dec 2000', 'DD Mon YYYY'), to_timestamp(1284352323.5), to_timestamp('2024-01-02 03:04:05', 'YYYY-MM-DD HH24:MI:SS');
SELECT to_date('2024-13-01', 'YYYY-MM-DD');
SELECT make_date(2013, 7, 15), make_time(8, 15, 23.5), make_timestamp(2013, 7, 15, 8, 15, 23.5), make_interval(days => 10, hours => 2), make_timestamptz(2013, 7, 15, 8, 15, 23.5);
SELECT make_date(2013, 2, 30);
SELECT justify_days(interval '35 days'), justify_hours(interval '27 hours'), justify_interval(interval '1 mon -1 hour'), isfinite(date 'infinity'), isfinite(interval '4 hours');
SELECT timestamp '2024-01-01 12:00' AT TIME ZONE 'America/Denver', timestamptz '2024-01-01 12:00-05' AT TIME ZONE 'America/Denver', timestamptz '2024-07-01 12:00+00' AT TIME ZONE 'Europe/Zurich', time '12:00'::interval;
SELECT timestamptz '2024-01-01 12:00+00'::date, timestamptz '2024-01-01 12:00+00'::time, timestamp '2024-01-01 12:00'::timestamptz, date '2024-01-01'::timestamp, '2024-01-01 12:34:56'::timestamp::time, interval '25:00'::time;
SELECT (date '2001-02-16', date '2001-12-21') OVERLAPS (date '2001-10-30', date '2002-10-30'), (date '2001-02-16', interval '100 days') OVERLAPS (date '2001-10-30', date '2002-10-30');
-- differs: days cannot be added to an infinite date
SELECT date '2024-01-01' < timestamp '2024-01-01 00:01', date '2024-01-01' = timestamptz '2024-01-01 00:00+00', timestamp 'infinity' > timestamp '9999-01-01', date 'infinity' + 1;
SELECT 'infinity'::timestamp + interval '1 day', 'infinity'::date - date '2024-01-01';
SELECT timestamp '2024-01-01' + 1;
SELECT date '2024-01-01' + date '2024-01-02';
SELECT 5::timestamp;
-- differs: it is accepted
SELECT time '12:00' + time '01:00';
SELECT generate_series(timestamp '2024-01-01', timestamp '2024-01-02', '12 hours');
SELECT generate_series(date '2024-01-01', date '2024-01-03', '1 day');
SELECT min(x), max(x) FROM (VALUES (timestamp '2024-01-01'), ('infinity'), ('-infinity')) v (x);
SELECT current_date = now()::date, current_timestamp = now(), localtimestamp::date = current_date, pg_typeof(localtime), pg_typeof(clock_timestamp());
SET TimeZone TO 'America/New_York';
SELECT timestamptz '2024-03-10 01:59:00' + interval '1 minute', timestamptz '2024-03-09 12:00' + interval '1 day', timestamptz '2024-03-09 12:00' + interval '24 hours', timestamptz '2024-11-03 01:30:00-04' + interval '1 hour';
SELECT timestamptz '2024-01-01 12:00', timestamp '2024-07-01 12:00'::timestamptz, timestamptz '2024-07-01 12:00+00'::timestamp, date_trunc('day', timestamptz '2024-07-01 02:00+00'), date_trunc('day', timestamptz '2024-07-01 02:00+00', 'Asia/Tokyo'), extract(hour FROM timestamptz '2024-07-01 02:00+00');
RESET TimeZone;
SELECT timestamptz '2024-01-01 12:00';
SELECT date_trunc('hour', interval '3 days 05:06:07'), date_trunc('month', interval '1 year 5 months 3 days'), date_trunc('year', interval '27 months'), date_trunc('day', interval '3 days 05:06'), date_trunc('decade', interval '25 years'), date_trunc('quarter', interval '8 months'), date_trunc('minute', interval '-1 day -00:01:30');
SELECT date_trunc('week', interval '8 days');
SELECT localtime <= now()::time;
-- Periods of times of day, and ends that are not known.
SELECT (time '10:00', time '12:00') OVERLAPS (time '11:00', time '13:00'), (time '10:00', time '11:00') OVERLAPS (time '11:00', time '13:00'), (time '10:00', interval '2 hours') OVERLAPS (time '11:00', time '13:00'), (time '10:00', interval '1 hour') OVERLAPS (time '11:00', interval '1 hour'), (time '13:00', time '10:00') OVERLAPS (time '12:00', time '14:00'), (time '10:00', time '10:00') OVERLAPS (time '10:00', time '10:00');
SELECT (time '23:00', interval '2 hours') OVERLAPS (time '00:30', time '02:00'), (timestamp '2024-01-01', timestamp '2024-02-01') OVERLAPS (timestamp '2024-02-01', interval '1 day'), (timestamptz '2024-01-01', interval '1 month') OVERLAPS (timestamptz '2024-01-31', timestamptz '2024-02-02');
SELECT (x.a, x.b) OVERLAPS (x.c, x.d) FROM (VALUES (date '2024-01-01', date '2024-01-05', date '2024-01-04', date '2024-01-09'), ('2024-01-01', NULL, '2024-01-01', '2024-01-09'), ('2024-01-01', NULL, '2023-01-01', '2025-01-01'), ('2024-01-01', NULL, '2023-01-01', '2023-02-01'), (NULL, NULL, '2023-01-01', '2023-02-01'), ('2024-01-05', '2024-01-01', '2024-01-02', NULL)) x (a, b, c, d);
SELECT (1, 2) OVERLAPS (3, 4);
SELECT (time '10:00', time '12:00') OVERLAPS (date '2024-01-01', date '2024-01-02');
-- A date is the instant at which it begins.
SELECT date_trunc('month', date '2024-02-29'), pg_typeof(date_trunc('month', date '2024-02-29')), date_trunc('week', date '2024-02-29'), date_trunc('hour', date '2024-02-29') = date '2024-02-29', date_trunc('year', NULL::date);
SET TimeZone TO 'America/New_York';
SELECT date_trunc('month', date '2024-02-29'), date_trunc('quarter', date '2024-08-01'), date_trunc('day', timestamp '2024-01-01 12:00', 'Asia/Tokyo');
RESET TimeZone;
SELECT timeofday() ~ '^[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d\.\d{6} \d{4} [A-Z]+$';

-- Years before Christ, and AD.
SELECT date 'January 8, 99 BC';
SELECT date 'Jan 8 1999 AD', date '1999-01-08 AD';
SELECT date '8-Jan-99 BC', date '99-Jan-08';
SELECT timestamp 'January 8, 99 10:00 BC';
SELECT date 'J0';
SELECT date 'J2451187';
