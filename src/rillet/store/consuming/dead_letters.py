"""The format of dead letters: copies of entries that a consumer, or an operator in the inspector, gave up.

    <the entry's fields>  _stream <key>  _group <name>  _id <ID>  _deliveries <number>  [_error <text>]

The consumers' `messages()` and the inspector write this format. `own_fields` removes what was added, so that an entry
returns to its stream as it was (`rillet dead-letters --requeue`), and `origin_of` reads it. The origin is at the end,
so a field of the entry itself with one of these names stays. Both also read the format of earlier inspectors:

    <the entry's fields>  dead-letter-of <key>  dead-letter-id <ID>  dead-letter-group <name>

By convention the dead letters of `orders` are in `orders.dead`; the inspector proposes this name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

META = (b"_stream", b"_group", b"_id", b"_deliveries", b"_consumer", b"_reason", b"_error")
"""The fields of a dead letter that are not the entry's; the first one begins them."""
OLD_META = (b"dead-letter-of", b"dead-letter-id", b"dead-letter-group")
REASONS = ("_reason", "_error", "reason", "error", "exception", "error_message")
"""The fields of a dead letter that say why it is one; the first that exists counts."""
TOO_OFTEN, BY_HAND = "delivered too often", "moved in the inspector"
_REASONS = tuple(name.encode() for name in REASONS)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a dead letter comes from, and why it is one; None for what it does not say."""

    stream: bytes | None
    group: bytes | None
    consumer: bytes | None
    id: bytes | None
    reason: bytes | None
    deliveries: int | None


def letter(
    target: bytes, flat: Sequence[bytes], stream: bytes, group: bytes, id: bytes, deliveries: int
) -> list[bytes]:  # fmt: skip
    """Return the XADD that writes a dead letter to `target`; flat: the names and values of the entry's fields."""
    return [b"XADD", target, b"*", *flat, b"_stream", stream, b"_group", group, b"_id", id,
            b"_deliveries", b"%d" % deliveries]  # fmt: skip


def is_letter(flat: list[bytes]) -> bool:
    """Return whether an entry ends with the fields of a dead letter."""
    return len(own_fields(flat)) < len(flat)


def origin_of(flat: list[bytes]) -> Origin:
    """Return the origin that an entry of a dead-letter stream names."""
    every = dict(zip(flat[::2], flat[1::2], strict=True))
    count = every.get(b"_deliveries", b"")
    deliveries = int(count) if count.isdigit() else None
    reason = next((every[field] for field in _REASONS if field in every), None)
    if reason is None:
        by_rule = TOO_OFTEN if deliveries is not None else BY_HAND if b"dead-letter-of" in every else None
        reason = None if by_rule is None else by_rule.encode()
    return Origin(every.get(b"_stream", every.get(b"dead-letter-of")),
                  every.get(b"_group", every.get(b"dead-letter-group")), every.get(b"_consumer"),
                  every.get(b"_id", every.get(b"dead-letter-id")), reason, deliveries)  # fmt: skip


def own_fields(flat: list[bytes]) -> list[bytes]:
    """Return the fields of a dead letter without its origin; all fields if it has none."""
    for names in (META, OLD_META):
        end = len(flat) - 2
        while end > 0 and flat[end] in names:
            if flat[end] == names[0]:
                return flat[:end]
            end -= 2
    return flat
