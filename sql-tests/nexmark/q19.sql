-- The ten highest bids on each auction.
SELECT auction, bidder, price, channel, url, date_time, extra, place
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid) AS q
WHERE place <= 10
