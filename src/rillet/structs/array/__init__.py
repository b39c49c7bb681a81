"""Lists with gaps, and the regular expressions that search them (Redis 8.8)."""
