-- Sequences by the column that they were made for, as tools set them after a copy of rows.
create table sq(id serial primary key, v text);
insert into sq(v) values ('a'),('b');
select setval(pg_get_serial_sequence('sq','id'), (select max(id) from sq));
select setval(pg_get_serial_sequence('"sq"','id'), coalesce(max("id"), 1), max("id") IS NOT null) FROM "sq";
select setval('sq_id_seq', max(id)) from sq;
select setval('sq_id_seq', (select coalesce(max(id),0)+1 from sq), false);
select nextval('sq_id_seq');
select setval('sq_id_seq'::regclass, 100, true);
select currval('sq_id_seq'), lastval();
-- refused 42704: there is no sequence, which is NULL to PostgreSQL
select setval(pg_get_serial_sequence('sq','v'), 3);
select setval(pg_get_serial_sequence('nowhere','id'), 3);
-- refused 0A000: a cast of what is no constant
select nextval(pg_get_serial_sequence('sq','id')::regclass);
