-- GROUP BY: sets within sets, each once; HAVING without it.
create table hv(a int, b int);
create table hv0(a int, b int);
insert into hv values (0,1),(1,2),(2,2);
SELECT 1 AS one FROM hv HAVING min(a) < max(a);
SELECT 1 AS one FROM hv HAVING 1 > 2;
SELECT 1 AS one FROM hv HAVING 1 < 2;
SELECT 1 AS one FROM hv0 HAVING true;
SELECT a FROM hv HAVING 1 < 2;
-- differs: WHERE is computed, though nothing depends on it
SELECT 1 AS one FROM hv WHERE 1/a = 1 HAVING 1 < 2;
SELECT 1 AS one FROM hv GROUP BY () HAVING 1 > 2;
SELECT 1 AS one FROM hv0 GROUP BY ();
SELECT count(*) FROM hv HAVING 1 > 2;
select a, b, count(*) from hv group by distinct rollup(a,b), rollup(a) order by 1,2,3;
select a, b, count(*) from hv group by all rollup(a,b), rollup(a) order by 1,2,3;
select a, b, count(*) from hv group by distinct rollup(hv.a,b), a order by 1,2,3;
select a, b, count(*) from hv group by distinct a, b order by 1,2,3;
select a, b, count(*) from hv group by all a, b order by 1,2,3;
select a, b, count(*) from hv group by grouping sets (a, rollup(b, a)) order by 1,2,3;
select a, b, count(*) from hv group by grouping sets (grouping sets ((a),(b)), ()) order by 1,2,3;
select a, b, sum(a) from hv group by grouping sets (cube(a), b) order by 1,2,3;
select a, b, sum(a) from hv group by grouping sets (cube((a,b)), rollup(b)), () order by 1,2,3;
select a+b, b, count(*), grouping(a+b, b) from hv group by rollup(a+b,b), a+b order by 1,2,3;
-- refused 54001: the SQLSTATE differs
select count(*) from hv group by cube(a,b,a,b,a,b,a,b,a,b,a,b,a);
select sum(a) over (order by a range between '1'::int preceding and current row) from hv;
select sum(a) over (order by a rows between '1'::int preceding and '1'::bigint following) from hv;
select U&"d\0061t\+000061" from (select 1 as data) v;
select U&'d\0061t\+000061' AS U&"d\0061t\+000061";
select U&'x' AS U&"d!0061t" UESCAPE '!';
select U&"\00g1" from hv;
select jsonb_each('{"a":1,"b":[2]}'::jsonb);
select (jsonb_each('{"a":1,"b":[2]}'::jsonb)).*;
select (jsonb_each_text('{"a":1,"b":"x"}'::jsonb)).key;
select json_each('{"a":[1]}'::json);
