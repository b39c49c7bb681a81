"""rillet: Redis Streams in Python."""
