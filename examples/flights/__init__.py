"""A year of departures from New York, replayed through a stream, a consumer group and Spark: `make demo`."""
