"""Byte formats and in-memory structures, independent of keys, clocks, clients and files."""
