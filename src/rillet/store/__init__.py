"""The store: the Python API, over an engine in this process, a directory's owner, or a server.

Read in this order: `opening` (open, connect), `store`, `stream`, `group`, `delivery`, `keys` and `types` (all other
types of keys), `codecs`, `transports` (how a command reaches an engine), `backend`, `directory` and `owner` (durable
stores), `channels` (messages that are not stored), `redis_py`, `aio`.
"""
