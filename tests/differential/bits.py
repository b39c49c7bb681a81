"""Random bit commands: SETBIT to BITFIELD on short and long strings, with wrong words now and then."""

from __future__ import annotations

from tests.differential import values

BITS = (b"b1", b"b2", b"b3", b"b4")
OTHERS = (b"missing", b"list")
OPERATIONS = (b"AND", b"or", b"XOR", b"not", b"DIFF", b"diff1", b"ANDOR", b"ONE", b"nor")
# Of 40 to 111 bytes, it depends on the server and on the key whether a text is embstr or raw.
TEXTS = (b"", b"\xff" * 9, bytes(33), b"foobar", b"12345", b"-7", b"a" * 120, b"\x80" + bytes(130) + b"\x01",
         b"\xff" * 140 + b"\xfe")  # fmt: skip


class Generator(values.Generator):
    """Commands on bits, and on the strings as texts."""

    TABLE = (
        (20, "set_bit"), (8, "get_bit"), (14, "count"), (14, "position"), (14, "operation"), (26, "field"), (8, "text"),
        (3, "key"), (1, "setting"),
    )  # fmt: skip
    SPARED = ()
    JUNK = (*values.JUNK, b"BIT", b"byte", b"SAT", b"i65", b"u64", b"i0", b"u", b"#3", b"#-1", b"#", b"4294967295")
    KEYS = (BITS,)
    LIMITS = ((b"proto-max-bulk-len", (b"536870912", b"1048576")),)
    SPAN = (12, 120)

    def _key(self) -> bytes:
        return self.one_of(BITS, OTHERS)

    def _offset(self) -> bytes:
        return b"%d" % self.random.choice((0, 7, 8, self.random.randrange(80), self.random.randrange(700)))

    def _bit(self) -> bytes:
        return self.random.choice((b"0", b"1", b"1", b"2") if self.random.random() < 0.1 else (b"0", b"1"))

    def _ends(self) -> list[bytes]:
        """Return no range, its start, or both ends, at times with a unit."""
        count = self.random.choice((0, 1, 2, 2, 2, 3, 3))
        unit = self.random.choice((b"BIT", b"bit", b"BYTE"))
        return [self.index(), self.index(), unit][:count]

    def set_bit(self) -> list[bytes]:
        """Return a SETBIT."""
        return [b"SETBIT", self._key(), self._offset(), self._bit()]

    def get_bit(self) -> list[bytes]:
        """Return a GETBIT."""
        return [b"GETBIT", self._key(), self._offset()]

    def count(self) -> list[bytes]:
        """Return a BITCOUNT."""
        return [b"BITCOUNT", self._key(), *self._ends()]

    def position(self) -> list[bytes]:
        """Return a BITPOS."""
        return [b"BITPOS", self._key(), self._bit(), *self._ends()]

    def operation(self) -> list[bytes]:
        """Return a BITOP."""
        name = self.random.choice(OPERATIONS)
        count = 1 if name == b"not" and self.random.random() < 0.9 else self.random.randrange(1, 5)
        return [b"BITOP", name, self._key(), *(self._key() for _ in range(count))]

    def field(self) -> list[bytes]:
        """Return a BITFIELD, at times a BITFIELD_RO."""
        read_only = self.random.random() < 0.2
        words = [b"BITFIELD_RO" if read_only else b"BITFIELD", self._key()]
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            kind = b"GET" if read_only else self.random.choice((b"GET", b"set", b"INCRBY", b"INCRBY", b"OVERFLOW"))
            if kind == b"OVERFLOW":
                words += [kind, self.random.choice((b"WRAP", b"sat", b"FAIL"))]
                continue
            width = self.random.choice((1, 2, 5, 8, 13, 16, 32, 63, 64))
            sign = b"i" if width == 64 else self.random.choice((b"i", b"u"))
            offset = b"#%d" % self.random.randrange(6) if self.random.random() < 0.3 else self._offset()
            words += [kind, b"%b%d" % (sign, width), offset]
            if kind != b"GET":
                words.append(self.random.choice(values.NUMBERS))
        return words

    def text(self) -> list[bytes]:
        """Return a command that takes the string for a text."""
        if self.random.random() < 0.5:
            return [b"SET", self.random.choice(BITS), self.random.choice(TEXTS)]
        return [b"APPEND", self.random.choice(BITS), self.random.choice(TEXTS)]
