"""Several keys in one command: allowed by a cluster only if the keys are in the same slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rillet.client.cluster import slot_of
from rillet.store.arguments.encoding import decode
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.transport import Transport


class HasTransport(Protocol):
    """A store: Store or AsyncStore."""

    @property
    def transport(self) -> Transport:
        """The transport to the engine."""


def by_slot(store: HasTransport, keys: Sequence[bytes], waits: bool) -> list[list[bytes]]:
    """Return the keys in groups that one command may have: on a cluster those of one slot, elsewhere all of them.

    Raise ValueError if the command waits and needs several groups, because one call cannot wait for several replies.
    """
    if not isinstance(store.transport, ClusterTransport):
        return [list(keys)]
    slots: dict[int, list[bytes]] = {}
    for key in keys:
        slots.setdefault(slot_of(key), []).append(key)
    if waits and len(slots) > 1:
        first, second = (decode(some[0]) for some in list(slots.values())[:2])
        raise ValueError(
            f"a cluster cannot wait for streams in different slots ({first!r} and {second!r}): read without block, or "
            "use names with the same hash tag, such as '{orders}.eu' and '{orders}.us'"
        )
    return list(slots.values())
