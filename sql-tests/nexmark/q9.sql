-- The winning bid of each auction.
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
       auction, bidder, price, bid_date_time, bid_extra
FROM (SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra,
             row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
      FROM auction AS a, bid AS b
      WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) AS q
WHERE place <= 1
