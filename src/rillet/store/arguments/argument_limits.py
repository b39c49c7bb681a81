"""The longest argument of a command, which is the same for every kind of store (Redis: proto-max-bulk-len).

A server that reads a longer argument replies with an error and closes the connection, often before the client has sent
the rest, so the client would not know what became of its command. Therefore the store compares the lengths before it
sends anything, and a store in this process refuses what a server would refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, StoreError
from rillet.protocol.command_parser import PROTO_MAX_BULK_LEN
from rillet.store.arguments.encoding import longest
from rillet.store.transports.in_process import InProcessTransport

if TYPE_CHECKING:
    from rillet.store.transports.transport import Transport

UNLIMITED = 1 << 20
"""No setting refuses an argument of at most so many bytes."""
_NAME = b"proto-max-bulk-len"


def check_lengths(transport: Transport, commands: Sequence[list[bytes]]) -> None:
    """Raise Redis's CommandError if an argument is longer than the engine accepts; nothing was executed.

    Arguments above a megabyte cost the owner of a directory a second command, CONFIG GET; those above the default limit
    of half a gigabyte cost it on servers.
    """
    check_length(transport, max(map(longest, commands), default=0))


def check_length(transport: Transport, size: int) -> None:
    """Do `check_lengths` for commands whose longest argument has `size` bytes."""
    if size <= UNLIMITED:
        return
    limit = _limit(transport, size)
    if size > limit:
        raise CommandError(f"Protocol error: invalid bulk length: an argument has {size:,} bytes, but the setting "
                           f"proto-max-bulk-len is {limit:,}")  # fmt: skip


def _limit(transport: Transport, size: int) -> int:
    if isinstance(transport, InProcessTransport):
        limit: int = transport.engine.settings.proto_max_bulk_len
        return limit
    from rillet.store.transports.connected import AttachedTransport

    if size <= PROTO_MAX_BULK_LEN and not isinstance(transport, AttachedTransport):
        return PROTO_MAX_BULK_LEN
    reply: Any = None
    try:
        reply = transport.execute([b"CONFIG", b"GET", _NAME])
    except (CommandError, StoreError):  # the command itself will show what is wrong
        pass
    return int(reply[1]) if isinstance(reply, list) and len(reply) == 2 else PROTO_MAX_BULK_LEN
