"""The append-only log of an engine (Redis: AOF)."""
