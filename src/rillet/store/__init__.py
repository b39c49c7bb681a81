"""The store: the Python API, over an engine in this process, a directory's owner, or a server.

Read in this order: `store` (Store, open, connect), `stream`, `group`, `transports` (how a command reaches an engine),
`backend`, `directory` and `owner` (durable stores), `channels` (messages that are not stored), `redis_py`, `aio`.
"""

from rillet.store.channels import ChannelMessage, Subscription
from rillet.store.entry import Entry
from rillet.store.group import Consumer, Group, Message, PendingEntry
from rillet.store.store import Store, connect, open
from rillet.store.stream import Stream

__all__ = ["ChannelMessage", "Consumer", "Entry", "Group", "Message", "PendingEntry", "Store", "Stream", "Subscription",
           "connect", "open"]  # fmt: skip
