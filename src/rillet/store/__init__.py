"""The store: the Python API, over an engine in this process, a directory's owner, or a server.

Read in this order: `opening` (open, connect), `store`, `stream`, `group`, `delivery`, `keys` and `types` (all other
types of keys), `codecs`, `transports` (how a command reaches an engine), `backend`, `directory` and `owner` (durable
stores), `channels` (messages that are not stored), `redis_py`, `aio`.
"""

from rillet.store import codecs
from rillet.store.channels import ChannelMessage, Subscription
from rillet.store.entry import Entry
from rillet.store.group import Consumer, Group, MultiConsumer
from rillet.store.info_records import ConsumerInfo, GroupInfo, PendingEntry, PendingSummary
from rillet.store.message import Message
from rillet.store.opening import connect, open
from rillet.store.stats import GroupStats, StoreStats, StreamMemory, StreamStats
from rillet.store.store import Store
from rillet.store.stream import Stream
from rillet.store.types.array import Array
from rillet.store.types.bitmap import Bitmap
from rillet.store.types.geo import Geo
from rillet.store.types.hash import Hash
from rillet.store.types.hyperloglog import HyperLogLog
from rillet.store.types.list import List
from rillet.store.types.set import Set
from rillet.store.types.sorted_set import SortedSet
from rillet.store.types.string import Counter, String

__all__ = ["Array", "Bitmap", "ChannelMessage", "Consumer", "ConsumerInfo", "Counter", "Entry", "Geo", "Group",
           "GroupInfo", "GroupStats", "Hash", "HyperLogLog", "List", "Message", "MultiConsumer", "PendingEntry",
           "PendingSummary", "Set",
           "SortedSet", "Store", "StoreStats", "Stream", "StreamMemory", "StreamStats", "String", "Subscription",
           "codecs", "connect", "open"]  # fmt: skip
