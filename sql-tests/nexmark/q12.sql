-- How many bids each bidder made in each ten seconds of the server's time.
SELECT bidder, count(*) AS bids, window_start AS starttime, window_end AS endtime
FROM TUMBLE(bid, p_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
