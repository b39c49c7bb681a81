"""zset."""
