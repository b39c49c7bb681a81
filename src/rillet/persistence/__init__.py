"""Persistence: the append-only log and the RDB files of an engine."""
