"""Replication: the stream of changes from a master to its replicas (Redis: replication.c)."""
