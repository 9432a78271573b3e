-- The highest bids of each ten seconds.
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid AS b
JOIN (SELECT max(price) AS maxprice, window_end AS date_time
      FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
      GROUP BY window_start, window_end) AS best
ON b.price = best.maxprice
WHERE b.date_time BETWEEN best.date_time - INTERVAL '10 seconds' AND best.date_time
