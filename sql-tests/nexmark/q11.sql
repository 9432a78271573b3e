-- How many bids each bidder made in each session.
SELECT bidder, count(*) AS bids, window_start AS starttime, window_end AS endtime
FROM SESSION(bid PARTITION BY bidder, date_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
