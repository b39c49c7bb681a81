"""Several keys in one command: allowed by a cluster only if the keys are in the same slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from rillet.store.arguments.encoding import decode
from rillet.store.transports.transport import Transport

if TYPE_CHECKING:
    from rillet.store.store import Store
    from rillet.store.transports.cluster import ClusterTransport


class HasTransport(Protocol):
    """A store: Store or AsyncStore."""

    @property
    def transport(self) -> Transport:
        """The transport to the engine."""


def by_slot(store: HasTransport, keys: Sequence[bytes], waits: bool) -> list[list[bytes]]:
    """Return the keys in groups that one command may have: on a cluster those of one slot, elsewhere all of them.

    Raise ValueError if the command waits and needs several groups, because one call cannot wait for several replies.
    """
    if not store.transport.clustered:
        return [list(keys)]
    from rillet.client.cluster import slot_of

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


def shards_of(store: Store) -> list[Callable[[list[bytes]], Any]]:
    """Return a function for each master of a cluster that runs a command there; for another store, one function."""
    transport = store.transport
    return cast("ClusterTransport", transport).shards() if transport.clustered else [store.run]
