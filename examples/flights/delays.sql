-- Delays by hour, airport and airline, from the stream that `make demo` fills:
--   rillet pipeline aggregate --path demo-output/flights.rillet --stream flights --batch \
--     --schema 'carrier string, origin string, dep_delay double, distance double' \
--     --sql-file examples/flights/delays.sql --parquet demo-output/delays_by_hour_and_airline
SELECT
  window.start AS window_start,
  window.end AS window_end,
  origin,
  carrier,
  count(*) AS flights,
  count(*) FILTER (WHERE dep_delay IS NULL) AS cancelled,
  count(*) FILTER (WHERE dep_delay > 15) AS late,
  count(*) / 60 AS a_minute,
  sum(distance) AS miles,
  avg(dep_delay) AS mean_delay,
  percentile_approx(dep_delay, 0.5) AS median_delay,
  percentile_approx(dep_delay, 0.95) AS worst_twentieth
FROM entries
GROUP BY window(timestamp, '1 hour'), origin, carrier
