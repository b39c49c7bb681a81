"""The results of methods, for annotations: records of streams, groups, messages and replicas.

    from rillet.records import GroupInfo

    def is_behind(group: GroupInfo) -> bool: ...
"""

from __future__ import annotations

from rillet.host.recovery import Recovery
from rillet.replication.changes import Change, ChangePosition
from rillet.store.channels import ChannelMessage
from rillet.store.consuming.delays import DelayedEntry, Retry
from rillet.store.handling import Handled
from rillet.store.info_records import (
    ConsumerInfo,
    GroupInfo,
    HeldBack,
    OrderedKey,
    PendingEntry,
    PendingSummary,
    Retention,
    StreamPlaces,
)
from rillet.store.partitions.group import PartitionedGroupInfo
from rillet.store.stats import GroupStats, StoreStats, StreamMemory, StreamStats, Waiting
from rillet.store.transaction import Queued

__all__ = [
    "Change",
    "ChangePosition",
    "ChannelMessage",
    "ConsumerInfo",
    "DelayedEntry",
    "GroupInfo",
    "GroupStats",
    "Handled",
    "HeldBack",
    "OrderedKey",
    "PartitionedGroupInfo",
    "PendingEntry",
    "PendingSummary",
    "Queued",
    "Recovery",
    "Retention",
    "Retry",
    "StoreStats",
    "StreamMemory",
    "StreamPlaces",
    "StreamStats",
    "Waiting",
]
