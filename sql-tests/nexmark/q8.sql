-- Persons who opened an auction within the ten seconds in which they registered.
SELECT p.id, p.name, p.starttime, p.endtime
FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
      FROM TUMBLE(person, date_time, INTERVAL '10 seconds')
      GROUP BY id, name, window_start, window_end) AS p
JOIN (SELECT seller, window_start AS starttime, window_end AS endtime
      FROM TUMBLE(auction, date_time, INTERVAL '10 seconds')
      GROUP BY seller, window_start, window_end) AS a
ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime
