"""Partitioned streams."""
