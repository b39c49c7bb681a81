"""Pop from the first key that has elements, and wait if there is none: BLPOP, LMPOP, BZPOPMIN, ZMPOP and their like.

    at once                  blocking                    propagated as
    LMPOP                    BLMPOP  BLPOP  BRPOP        LPOP or RPOP, with the number of elements that were popped
    ZMPOP                    BZMPOP  BZPOPMIN  BZPOPMAX  ZPOPMIN or ZPOPMAX, likewise

The command tries its keys in their order. If no key holds elements, the session blocks on all of them. Redis 7.0 serves
it from the key that woke it. Since 7.2 the command runs again, so an earlier key may serve it. A key of another type
is an error when the command meets it, but does not wake a session. Inside MULTI the command does not block:
its reply is that of a timeout. (Redis: t_list.c, t_zset.c, blocked.c.)
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from rillet.commands.arguments import LLONG_MAX, float_value, integer, syntax_error, timeout_seconds
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs import long_double

_NUMKEYS = "numkeys should be greater than 0"
_OUT_OF_RANGE = "timeout is out of range"


def blocking_timeout(session: Session, raw: bytes) -> int:
    """Return a timeout in milliseconds that is given in seconds (timeout.c: getTimeoutFromObjectOrReply)."""
    if not session.engine.settings.compat.knows(72):
        return timeout_seconds(raw)
    try:
        value = ceil(long_double.rounded(float_value(raw, "timeout is not a float or out of range") * 1000))
    except long_double.NotFinite:
        value = -1 if raw.startswith(b"-") else LLONG_MAX + 1
    if value < 0:
        raise CommandError("timeout is negative")
    if value > LLONG_MAX - session.engine.clock.now_ms():
        raise CommandError(_OUT_OF_RANGE)
    return value


def read_mpop(argv: list[bytes], at: int, sides: tuple[bytes, bytes]) -> tuple[list[bytes], bytes, int]:
    """Return the keys, the side in lower case, and the count of LMPOP or ZMPOP; argv[at] is the number of keys.

    Source: lmpopGenericCommand, zmpopGenericCommand.
    """
    numkeys = integer(argv[at], _NUMKEYS)
    if numkeys < 1:
        raise CommandError(_NUMKEYS)
    where = at + 1 + numkeys
    if where >= len(argv) or argv[where].lower() not in sides:
        raise syntax_error()
    rest = argv[where + 1 :]
    count = 1
    if rest:
        if rest[0].lower() != b"count" or len(rest) == 1:
            raise syntax_error()
        count = integer(rest[1], "count should be greater than 0")
        if count < 1:
            raise CommandError("count should be greater than 0")
        if len(rest) > 2:
            raise syntax_error()
    return argv[at + 1 : where], argv[where].lower(), count


def keys_after_number(at: int) -> Callable[[list[bytes]], list[int]]:
    """Return a function that finds the positions of keys that follow their number, argv[at] (db.c: genericGetKeys)."""

    def positions(argv: list[bytes]) -> list[int]:
        try:
            numkeys = integer(argv[at])
        except CommandError:
            return []
        return list(range(at + 1, at + 1 + numkeys)) if 0 < numkeys < len(argv) - at else []

    return positions


class FirstKeyPop:
    """A pop from the first of several keys that has elements; count None: reply with one element, not an array.

    A subclass defines `kind`, `for_write` and `pop`.
    """

    __slots__ = ("count", "from_end", "keys")
    kind: type

    def __init__(self, keys: list[bytes], from_end: bool, count: int | None) -> None:
        self.keys = keys
        self.from_end = from_end
        self.count = count

    def for_write(self, session: Session, key: bytes) -> Any:
        """Return the value at the key, or None; raise WrongType if it has another type."""
        raise NotImplementedError

    def pop(self, session: Session, key: bytes, value: Any) -> None:
        """Pop from this value, write the reply, propagate the command."""
        raise NotImplementedError

    def run(self, session: Session) -> bool:
        """Pop from the first value; return False if no key has one."""
        for key in self.keys:
            value = self.for_write(session, key)
            if value is not None:
                self.pop(session, key, value)
                return True
        return False

    def run_or_null(self, session: Session) -> None:
        """Pop, or reply null if no key has a value."""
        if not self.run(session):
            session.out.null_array()

    def run_or_block(self, session: Session, timeout: int) -> None:
        """Pop, or block on all keys until one has a value (blockingGenericZpopCommand)."""
        if self.run(session):
            return
        if session.can_block:
            session.block(self.keys, timeout, self.serve, timed_out)
        else:
            session.out.null_array()

    def serve(self, session: Session, key: bytes) -> bool:
        """Serve a blocked session whose key changed; return False if the session must continue to wait."""
        value = session.db.lookup(key)
        if not isinstance(value, self.kind):
            return False
        if session.engine.settings.compat.knows(72):
            return self.run(session)
        self.pop(session, key, value)
        return True


def timed_out(session: Session) -> None:
    """Write the reply of a timeout."""
    session.out.null_array()
