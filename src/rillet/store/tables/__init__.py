"""Streams as Arrow tables and back: arrow reads and writes; the other modules find the types of columns."""
