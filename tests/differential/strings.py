"""Random string commands: conditions, digests, bounds, expiries; and encodings, which depend on the key's length.

Every key has an encoding to compare: in newer servers it depends on the lengths of key and value, on what the value
replaced, and on the key that it had before.
"""

from __future__ import annotations

from rillet.types.string import hex_digest
from tests.differential import values

STRINGS = (b"k", b"k" * 9, b"b" * 31, b"c" * 32, b"d" * 45, b"e" * 100)
OTHERS = (b"missing", b"list")
# The sums of a key and a value, or the values, at which encodings change.
ROOMS = (41, 44, 103, 105, 111, 113)
WORDS = (b"", b"x", b"hello", b"12", b"-7", b"9999", b"10000", b"1.5", b"1e400", b"inf")
REALS = (b"1.5", b"-0.25", b"1e17", b"3", b"inf", b"-inf", b"nan", b"1e4932", b"1.1e4932", b"x", b"0x10")
WHOLES = (b"1", b"-1", b"5", b"-5", b"100", b"9223372036854775807", b"-9223372036854775808", b"1.5", b"x", b"0")
EXPIRIES = ((b"EX", b"1000"), (b"px", b"1000000"), (b"EXAT", b"32503680000"), (b"PXAT", b"32503680000000"),
            (b"PXAT", b"1"), (b"EXAT", b"5"), (b"EX", b"0"))  # fmt: skip


class Generator(values.Generator):
    """Commands on strings of all lengths."""

    TABLE = (
        (16, "set"), (10, "compare"), (6, "digest"), (6, "delete"), (10, "many"), (18, "increase"), (10, "change"),
        (8, "expire"), (8, "key"), (6, "look"),
    )  # fmt: skip
    SPARED = ()
    JUNK = (*values.JUNK, b"NX", b"xx", b"GET", b"KEEPTTL", b"IFEQ", b"IFDNE", b"SATURATE", b"ENX", b"PERSIST")
    KEYS = (STRINGS,)
    LIMITS = ((b"proto-max-bulk-len", (b"536870912", b"1048576")),)
    SPAN = (4, 20)

    def _key(self) -> bytes:
        return self.one_of(STRINGS, OTHERS)

    def _value(self, key: bytes) -> bytes:
        """Return a value, at times of a length at which the encoding changes."""
        if self.random.random() < 0.5:
            return self.random.choice(WORDS)
        size = self.random.choice(ROOMS) - self.random.choice((0, len(key))) + self.random.choice((-1, 0, 0, 1))
        return b"v" * max(size, 0)

    def _expiry(self) -> list[bytes]:
        return list(self.random.choice(EXPIRIES))

    def _condition(self, key: bytes) -> list[bytes]:
        word = self.random.choice((b"IFEQ", b"ifne", b"IFDEQ", b"IFDNE", b"IFEQ"))
        value = self._value(key)
        if b"D" in word:
            value = self.random.choice((hex_digest(value), hex_digest(value).upper(), b"0" * 16, b"0"))
        return [word, value]

    def set(self) -> list[bytes]:
        """Return a SET with any options."""
        key = self._key()
        argv = [b"SET", key, self._value(key)]
        options = [self.maybe(b"NX", 0.1), self.maybe(b"xx", 0.1), self.maybe(b"KEEPTTL", 0.15)]
        # With GET, an error follows the value as a second reply in Redis: a digest of a wrong length is left out.
        condition = self._condition(key) if self.random.random() < 0.3 else []
        if not (condition and b"D" in condition[0].upper() and len(condition[1]) != 16):
            options.append(self.maybe(b"GET", 0.2))
        options.append(condition)
        if self.random.random() < 0.3:
            options.append(self._expiry())
        self.random.shuffle(options)
        return argv + [word for words in options for word in words]

    def compare(self) -> list[bytes]:
        """Return a SET whose value is what the key may hold, under a condition."""
        key = self._key()
        value, operand = self.random.choices(WORDS, k=2)
        return [b"SET", key, value, self.random.choice((b"IFEQ", b"IFNE")), operand]

    def digest(self) -> list[bytes]:
        """Return a DIGEST."""
        return [b"DIGEST", self._key()]

    def delete(self) -> list[bytes]:
        """Return a DELEX or DELIFEQ."""
        key = self._key()
        if self.random.random() < 0.3:
            return [b"DELIFEQ", key, self.random.choice(WORDS)]
        return [b"DELEX", key, *(self._condition(key) if self.random.random() < 0.9 else [])]

    def many(self) -> list[bytes]:
        """Return an MSETEX or MSET."""
        count = self.random.choice((1, 2, 3))
        pairs = [word for key in self.random.choices(STRINGS, k=count) for word in (key, self._value(key))]
        if self.random.random() < 0.3:
            return [b"MSET", *pairs]
        options = self.maybe(b"NX", 0.2) + self.maybe(b"XX", 0.2) + self.maybe(b"KEEPTTL", 0.2)
        expiry = self._expiry() if self.random.random() < 0.4 else []
        return [b"MSETEX", b"%d" % count, *pairs, *options, *expiry]

    def increase(self) -> list[bytes]:
        """Return an INCREX, mostly of a number."""
        pool = self.random.choice((REALS, WHOLES, WHOLES))
        argv = [b"INCREX", self._key()]
        if self.random.random() < 0.8:
            argv += [b"BYFLOAT" if pool is REALS else b"byint", self.random.choice(pool)]
        for word in (b"LBOUND", b"UBOUND"):
            if self.random.random() < 0.3:
                argv += [word, self.random.choice(pool)]
        argv += self.maybe(b"SATURATE")
        if self.random.random() < 0.3:
            argv += self._expiry()
        return argv + self.maybe(b"PERSIST", 0.1) + self.maybe(b"ENX", 0.15)

    def change(self) -> list[bytes]:
        """Return a command that changes a string in place or replaces it."""
        key = self._key()
        value = self._value(key)
        return self.random.choice((
            [b"APPEND", key, self.random.choice(WORDS)], [b"SETRANGE", key, b"2", b"z"], [b"GETSET", key, value],
            [b"INCR", key], [b"INCRBYFLOAT", key, b"0.5"], [b"SETNX", key, value], [b"GETDEL", key],
            [b"SETEX", key, b"1000", value],
        ))  # fmt: skip

    def expire(self) -> list[bytes]:
        """Return a command on an expiry."""
        key = self._key()
        return self.random.choice((
            [b"EXPIRE", key, b"1000"], [b"PERSIST", key], [b"GETEX", key, b"EX", b"500"], [b"GETEX", key, b"PERSIST"],
        ))  # fmt: skip

    def look(self) -> list[bytes]:
        """Return a command that shows a string."""
        key = self._key()
        return self.random.choice(([b"GET", key], [b"STRLEN", key], [b"OBJECT", b"REFCOUNT", key], [b"LCS", key, b"k"]))
