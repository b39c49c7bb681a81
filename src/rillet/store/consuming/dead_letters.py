"""The format of dead letters: copies of entries that a consumer, or an operator in the inspector, gave up.

    <the entry's fields>  _stream <key>  _group <name>  _id <ID>  _deliveries <number>  [_error <text>]

The consumers' `messages()` and the inspector write this format. `own_fields` removes what was added, so that an entry
returns to its stream as it was (`rillet dead-letters --requeue`). The origin is at the end, so a field of
the entry itself with one of these names stays. It also reads the format of earlier inspectors:

    <the entry's fields>  dead-letter-of <key>  dead-letter-id <ID>  dead-letter-group <name>

By convention the dead letters of `orders` are in `orders.dead`; the inspector proposes this name.
"""

from __future__ import annotations

from collections.abc import Sequence

META = (b"_stream", b"_group", b"_id", b"_deliveries", b"_consumer", b"_reason", b"_error")
"""The fields of a dead letter that are not the entry's; the first one begins them."""
OLD_META = (b"dead-letter-of", b"dead-letter-id", b"dead-letter-group")


def letter(
    target: bytes, flat: Sequence[bytes], stream: bytes, group: bytes, id: bytes, deliveries: int
) -> list[bytes]:  # fmt: skip
    """Return the XADD that writes a dead letter to `target`; flat: the names and values of the entry's fields."""
    return [b"XADD", target, b"*", *flat, b"_stream", stream, b"_group", group, b"_id", id,
            b"_deliveries", b"%d" % deliveries]  # fmt: skip


def own_fields(flat: list[bytes]) -> list[bytes]:
    """Return the fields of a dead letter without its origin; all fields if it has none."""
    for names in (META, OLD_META):
        end = len(flat) - 2
        while end > 0 and flat[end] in names:
            if flat[end] == names[0]:
                return flat[:end]
            end -= 2
    return flat


__all__ = ["META", "OLD_META", "letter", "own_fields"]
