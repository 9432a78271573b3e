-- Bids with what a table says of their auctions at that time.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid AS b JOIN side_input FOR SYSTEM_TIME AS OF b.p_time AS s ON mod(b.auction, 10000) = s.key
