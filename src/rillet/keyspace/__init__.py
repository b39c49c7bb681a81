"""Databases: keys, expiry, watched and blocking keys (Redis: redisDb)."""
