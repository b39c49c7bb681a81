"""Pops from the first key that has elements, with or without blocking: BLPOP, LMPOP, BZPOPMIN, ZMPOP and others.

    at once                  blocking                    propagated as
    LMPOP                    BLMPOP  BLPOP  BRPOP        LPOP or RPOP, with the number of elements that were popped
    ZMPOP                    BZMPOP  BZPOPMIN  BZPOPMAX  ZPOPMIN or ZPOPMAX, likewise

The command tries its keys in their order. If no key holds elements, the session blocks on all of them. In Redis 7.0
the reply comes from the key that ended the blocking. Since 7.2 the command runs again, so the reply may come from an
earlier key. A value of another type is an error, but does not end the blocking. Inside MULTI the command replies null
instead of blocking. (Redis: t_list.c, t_zset.c, blocked.c.)
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import LLONG_MAX, float_value, integer, syntax_error
from rillet.commands.lookup import value_for_blocked, value_for_write
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs import long_double

if TYPE_CHECKING:
    from typing import Self

_NUMKEYS = "numkeys should be greater than 0"
_COUNT = "count should be greater than 0"


def blocking_timeout(session: Session, raw: bytes) -> int:
    """Parse a timeout in seconds; return milliseconds, rounded up (timeout.c: getTimeoutFromObjectOrReply)."""
    try:
        value = ceil(long_double.rounded(float_value(raw, "timeout is not a float or out of range") * 1000))
    except long_double.NotFinite:
        value = -1 if raw.startswith(b"-") else LLONG_MAX + 1
    if value < 0:
        raise CommandError("timeout is negative")
    if session.engine.settings.compat.knows(72):
        if value > LLONG_MAX - session.engine.clock.now_ms():
            raise CommandError("timeout is out of range")
    elif value > LLONG_MAX:
        # On x86, C converts a double beyond the range of long long to the most negative long long.
        raise CommandError("timeout is negative")
    return value


class KeysAfterNumber:
    """A function from argv to the positions of its keys: `before`, and those after argv[at], the number of keys.

    Each key is the first of `step` arguments. Source: db.c, genericGetKeys.
    """

    __slots__ = ("at", "before", "step")

    def __init__(self, at: int, *before: int, step: int = 1) -> None:
        self.at = at
        self.before = before
        self.step = step

    def __call__(self, argv: list[bytes]) -> list[int]:
        """Return the positions of the keys; none, not even `before`, if the number of keys is invalid."""
        at = self.at
        try:
            numkeys = integer(argv[at])
        except CommandError:
            numkeys = 0
        end = at + 1 + numkeys * self.step
        return [*self.before, *range(at + 1, end, self.step)] if numkeys > 0 and end - self.step < len(argv) else []


class FirstKeyPop:
    """A pop from the first of several keys that has elements. If `count` is None, the reply is one element.

    A subclass defines `kind` (the type of the values), `sides` (the option words for both ends) and `pop`.
    """

    __slots__ = ("count", "from_end", "keys")
    kind: type
    sides: tuple[bytes, bytes]

    def __init__(self, keys: list[bytes], from_end: bool, count: int | None) -> None:
        self.keys = keys
        self.from_end = from_end
        self.count = count

    @classmethod
    def read_mpop(cls, argv: list[bytes], at: int) -> Self:
        """Parse LMPOP or ZMPOP; argv[at] is the number of keys (lmpopGenericCommand, zmpopGenericCommand)."""
        numkeys = integer(argv[at], _NUMKEYS)
        if numkeys < 1:
            raise CommandError(_NUMKEYS)
        where = at + 1 + numkeys
        if where >= len(argv) or argv[where].lower() not in cls.sides:
            raise syntax_error()
        options = argv[where + 1 :]
        count = 1
        if options:
            if options[0].lower() != b"count" or len(options) == 1:
                raise syntax_error()
            count = integer(options[1], _COUNT)
            if count < 1:
                raise CommandError(_COUNT)
            if len(options) > 2:
                raise syntax_error()
        return cls(argv[at + 1 : where], argv[where].lower() == cls.sides[1], count)

    def pop(self, session: Session, key: bytes, value: Any) -> None:
        """Pop from the value at a key, write the reply, and propagate the pop."""
        raise NotImplementedError

    def run(self, session: Session) -> bool:
        """Pop from the first key that holds a value; return False if no key exists."""
        for key in self.keys:
            value = value_for_write(session, key, self.kind)
            if value is not None:
                self.pop(session, key, value)
                return True
        return False

    def run_or_null(self, session: Session) -> None:
        """Pop, or reply null if no key exists."""
        if not self.run(session):
            session.out.null_array()

    def run_or_block(self, session: Session, timeout: bytes) -> None:
        """Pop, or block until one of the keys exists (blockingGenericZpopCommand)."""
        milliseconds = blocking_timeout(session, timeout)
        if self.run(session):
            return
        if session.can_block:
            session.block(self.keys, milliseconds, self.serve, timed_out)
        else:
            session.out.null_array()

    def serve(self, session: Session, key: bytes) -> bool:
        """Serve a blocked session whose key changed; return False if the session must continue to wait."""
        value = value_for_blocked(session, key)
        if not isinstance(value, self.kind):
            return False
        if session.engine.settings.compat.knows(72):
            return self.run(session)
        self.pop(session, key, value)
        return True


def timed_out(session: Session) -> None:
    """Reply null to a session whose timeout has passed."""
    session.out.null_array()
