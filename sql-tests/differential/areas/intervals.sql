-- Fields of intervals: what numbers without a unit are, and what is cut.
SELECT interval '1' year, interval '1' day, interval '1-2' year to month, interval '1 2:03' day to minute, interval '1 2:03:04' day to second;
SELECT interval '1 2' day to hour, interval '2:03' hour to minute, interval '2:03:04' hour to second, interval '2:03' minute to second, interval '1.5' second;
SELECT interval '1 year 2 mons 3 days 04:05:06' year, interval '1 year 2 mons 3 days 04:05:06' month, interval '1 year 2 mons 3 days 04:05:06' day, interval '1 year 2 mons 3 days 04:05:06' hour, interval '1 year 2 mons 3 days 04:05:06' minute, interval '1 year 2 mons 3 days 04:05:06' second;
SELECT interval '1 year 2 mons 3 days 04:05:06' year to month, interval '1 day 04:05:06' day to hour, interval '1 day 04:05:06' day to minute, interval '1 day 04:05:06.7' day to second;
SELECT '1 day 2 hours'::interval day, cast('1 year 2 months 3 days' as interval year), cast('1 year 2 months 3 days 04:05' as interval month);
SELECT interval(2) '1.2345 seconds', interval '1.2345' second(2), '1.2345 s'::interval(2), interval '5' minute + interval '1' hour;
SELECT (interval '1 day 23:59' + interval '1 minute')::interval hour;
CREATE TABLE spans (a interval day to hour, b interval year to month, c interval minute to second(1));
INSERT INTO spans VALUES ('1 2', '1-2', '2:03.46'), ('3 days 04:05', '1 year 5 days', '90 seconds');
SELECT * FROM spans ORDER BY a;
-- A text says each unit once.
SELECT interval '1 day 1 day';
SELECT interval '1 hour 04:05:06';
SELECT interval '1 mon 1 month';
SELECT interval '1 2';
SELECT interval '1e2 seconds';
SELECT interval '1 fortnight';
SELECT interval '';
-- Fractions, signs and other forms.
SELECT interval '1.5 months', interval '1.3 years', interval '0.5 weeks', interval '-1 day +2 hours', interval '-1.5 days', interval '1.75 hours';
SELECT interval 'P1Y2M', interval 'P0001-02-03T04:05:06', interval 'PT1.5H', interval 'P-1Y', interval 'P2W', interval 'PT-5M';
SELECT interval '1 year ago', interval '3 days ago 2 hours', interval '@ 1 day, 2 hours', interval '1h30m', interval '12';
SELECT interval '100:00', interval '1 12:59:10.5', interval '2:03.5', interval '1 decade 2 centuries', interval '10 yr 3 mon', interval '5 m', interval '1 millennium';
SELECT '2147483648 months'::interval;
-- Words that need a clock.
SELECT date 'today' = current_date, date 'tomorrow' - date 'yesterday', timestamp 'today' = current_date, timestamptz 'now' = now(), 'now'::timestamp = localtimestamp, 'yesterday 04:05'::timestamp - 'yesterday'::timestamp;
SELECT 'now'::date = current_date, time 'now' = localtime;
SELECT 'today'::time;
SELECT 'today x'::date;
-- Widths of date_bin.
SELECT date_bin('15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01');
SELECT date_bin('1 month', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01');
SELECT date_bin('-5 min', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01');
SELECT date_bin('0 days', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01');
SELECT date_trunc('day', timestamptz '2024-01-01 00:00+00', 'Australia/Sydney') = timestamptz '2023-12-31 13:00+00';
SELECT date_bin(w, timestamp '2020-02-11 15:44:17', timestamp '2001-01-01') FROM (SELECT interval '7 days' AS w) AS s;
SELECT date_bin('1 month', NULL::timestamp, timestamp '2001-01-01');
