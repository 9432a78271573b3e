-- The auctions with the most bids of the last ten seconds, every two seconds.
SELECT most.auction, most.num, most.endtime
FROM (SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
      FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
      GROUP BY auction, window_start, window_end) AS most
JOIN (SELECT max(num) AS maxn, starttime, endtime
      FROM (SELECT count(*) AS num, window_start AS starttime, window_end AS endtime
            FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
            GROUP BY auction, window_start, window_end) AS counts
      GROUP BY starttime, endtime) AS best
ON most.starttime = best.starttime AND most.endtime = best.endtime AND most.num >= best.maxn
