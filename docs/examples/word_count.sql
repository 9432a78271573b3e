-- How often each word is in a text that grows.

CREATE STREAM line (text TEXT);

-- The mapper splits each line; counts of one epoch are combined before they are sent to the words' partitions.
CREATE MATERIALIZED VIEW word_count AS
  SELECT word, count(*) AS n
  FROM line, unnest(string_to_array(regexp_replace(lower(text), '[^a-z ]', '', 'g'), ' ')) AS w (word)
  WHERE word <> ''
  GROUP BY word;

CREATE MATERIALIZED VIEW most_frequent AS
  SELECT word, n FROM word_count ORDER BY n DESC, word LIMIT 3;

INSERT INTO line VALUES
  ('The quick brown fox jumps over the lazy dog.'),
  ('The dog was not amused; the fox was.');
