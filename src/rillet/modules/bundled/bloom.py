"""Bloom filters: the commands BF.* of RedisBloom, with its format in RDB files and chunks.

    filter ──► link 0: 100 items, error 0.005     link 1: 200 items, error 0.0025     ...
               [ bits ............ ]              [ bits ........................ ]

A filter answers whether an item was added: "no" is certain, "yes" is wrong with the error rate. A link is a bit array
with `hashes` bits per item; when it has its capacity, a link with `expansion` times the capacity and half the error
follows, so that the errors of all links sum to the rate of the filter.

    bits = capacity * bits per item                 bits per item = -ln(error) / ln(2)^2
    hashes = ceil(ln(2) * bits per item)
    bit i of an item = (a + i * b) mod bits         a, b: MurmurHash64A of the item with two seeds

The type's name, the order of the fields and the hash function are RedisBloom's, so its RDB files, DUMP payloads and
chunks load here, and ours load there. Filters of its oldest versions, with hashes of 32 bits, are read, too.

Costs: O(hashes * links) for an item, about 10 microseconds in Python. Memory: 1.4 bytes per item at an error of 0.01.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from rillet.commands.arguments import arity_error
from rillet.errors import CommandError, Corrupt
from rillet.modules import Context, KeyPlace, Module, ModuleReader, ModuleType, ModuleWriter, OpenKey
from rillet.types.string import string2ll

module = Module("bf", 1)
module.integer("initial-size", "Capacity of a filter that BF.ADD creates", 100, 1, 1 << 30)
module.string("error-rate", "Error rate of a filter that BF.ADD creates, between 0 and 1", "0.01",
              on_set=lambda _context, value: _valid_rate(value))  # fmt: skip
module.integer("expansion-factor", "How many times larger the next link of such a filter is", 2, 1, 32768)

_NO_ROUND, _ENTRIES_ARE_BITS, _FORCE_64, _NO_SCALING = 1, 2, 4, 8
_OPTIONS = _NO_ROUND | _ENTRIES_ARE_BITS | _FORCE_64 | _NO_SCALING
_TIGHTENING = 0.5
_LN2, _LN2_SQUARED = 0.693147180559945, 0.480453013918201  # RedisBloom's constants: the sizes depend on them
_MASK_64, _MASK_32 = (1 << 64) - 1, (1 << 32) - 1
_SEED_64, _SEED_32 = 0xC6A4A7935BD1E995, 0x9747B28C
_CHUNK = 16 << 20
_CHAIN_BYTES, _LINK_BYTES = 32, 64  # of RedisBloom's structs, for BF.INFO
_HEADER = struct.Struct("<QIII")
_LINK_HEADER = struct.Struct("<QQQddIQB")
_MOST_BYTES = 1 << 32
_LAST_ENCODING = 4
_WITH_OPTIONS, _WITH_GROWTH = 2, 4  # the encodings that introduced these fields


def murmur_64(data: bytes, seed: int) -> int:
    """Return MurmurHash64A of the data. O(bytes)"""
    factor, mask = _SEED_64, _MASK_64
    found = seed ^ (len(data) * factor & mask)
    whole = len(data) & ~7
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        word = word * factor & mask
        word ^= word >> 47
        found = (found ^ (word * factor & mask)) * factor & mask
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * factor & mask
    found ^= found >> 47
    found = found * factor & mask
    return found ^ found >> 47


def murmur_32(data: bytes, seed: int) -> int:
    """Return MurmurHash2 of the data, which filters of RedisBloom 1.0 use. O(bytes)"""
    factor, mask = 0x5BD1E995, _MASK_32
    found = seed ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * factor & mask
        word ^= word >> 24
        found = (found * factor & mask) ^ (word * factor & mask)
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * factor & mask
    found ^= found >> 13
    found = found * factor & mask
    return found ^ found >> 15


class Link:
    """One bit array. `power` is the logarithm of its number of bits in filters that round up, else 0."""

    __slots__ = ("bits", "bits_per_item", "capacity", "data", "error", "hashes", "power", "size")

    def __init__(self, capacity: int, error: float) -> None:
        self.capacity = capacity
        self.error = error
        self.bits_per_item = abs(math.log(error) / _LN2_SQUARED)
        self.hashes = math.ceil(_LN2 * self.bits_per_item)
        size = (max(int(capacity * self.bits_per_item), 1) + 63) // 64 * 8
        if size > _MOST_BYTES:
            raise CommandError("could not create filter")
        self.data = bytearray(size)
        self.bits = size * 8
        self.power = 0
        self.size = 0

    def positions(self, a: int, b: int, mask: int) -> list[int]:
        """Return the bits of an item with the hashes a and b."""
        bits = 1 << self.power if self.power else self.bits
        return [(a + i * b & mask) % bits for i in range(self.hashes)]

    def check(self) -> None:
        """Raise Corrupt if the fields contradict each other (bloom_validate_integrity)."""
        sound = (
            0 < self.error < 1 and self.power <= 63 and 0 < self.bits == 8 * len(self.data)
            and (not self.power or self.bits >= 1 << self.power) and math.isfinite(self.bits_per_item)
            and self.hashes == math.ceil(_LN2 * self.bits_per_item) and self.hashes < 1 << 16
        )  # fmt: skip
        if not sound:
            raise Corrupt("a link of a Bloom filter is malformed")


class Bloom:
    """A filter: its links, the number of items that changed it, its options and the growth of the next link."""

    __slots__ = ("growth", "links", "options", "size")

    def __init__(self, capacity: int, error: float, growth: int, scaling: bool) -> None:
        self.options = _FORCE_64 | _NO_ROUND | (0 if scaling else _NO_SCALING)
        self.growth = growth
        self.size = 0
        self.links = [Link(capacity, error * (_TIGHTENING if scaling else 1))]

    @property
    def scaling(self) -> bool:
        """Whether another link follows a full one."""
        return not self.options & _NO_SCALING

    @property
    def capacity(self) -> int:
        """The capacity of all links."""
        return sum(link.capacity for link in self.links)

    def memory(self) -> int:
        """Return the bytes that RedisBloom counts. O(links)"""
        return _CHAIN_BYTES + sum(_LINK_BYTES + len(link.data) for link in self.links)

    def _hashes(self, link: Link, item: bytes) -> tuple[int, int, int]:
        """Return the two hashes of an item and the mask of their sum."""
        if self.options & _FORCE_64:
            first = murmur_64(item, _SEED_64)
            return first, murmur_64(item, first), _MASK_64
        first = murmur_32(item, _SEED_32)
        narrow = 0 < link.power <= 31
        return first, murmur_32(item, first), _MASK_32 if narrow else _MASK_64

    def __contains__(self, item: bytes) -> bool:
        """Return whether the item may have been added. O(links)"""
        return any(
            all(link.data[at >> 3] >> (at & 7) & 1 for at in link.positions(*self._hashes(link, item)))
            for link in reversed(self.links)
        )

    def add(self, item: bytes) -> bool:
        """Add an item; return False if it may have been added before. CommandError if the filter is full. O(links)"""
        if item in self:
            return False
        link = self.links[-1]
        if link.size >= link.capacity:
            if not self.scaling:
                raise CommandError("non scaling filter is full")
            link = Link(link.capacity * self.growth, link.error * _TIGHTENING)
            self.links.append(link)
        for at in link.positions(*self._hashes(link, item)):
            link.data[at >> 3] |= 1 << (at & 7)
        link.size += 1
        self.size += 1
        return True

    def check(self) -> None:
        """Raise Corrupt if the fields contradict each other."""
        if not self.links or self.options & ~_OPTIONS or self.size != sum(link.size for link in self.links):
            raise Corrupt("a Bloom filter is malformed")
        for link in self.links:
            link.check()


@module.type
class BloomType(ModuleType):
    """RedisBloom's type of Bloom filters."""

    name = "MBbloom--"
    encoding_version = _LAST_ENCODING

    def rdb_save(self, out: ModuleWriter, value: Bloom) -> None:
        """Write the filter and its links."""
        for number in (value.size, len(value.links), value.options, value.growth):
            out.unsigned(number)
        for link in value.links:
            out.unsigned(link.capacity)
            out.double(link.error)
            out.unsigned(link.hashes)
            out.double(link.bits_per_item)
            out.unsigned(link.bits if value.options & _NO_ROUND else link.power)
            out.string(bytes(link.data))
            out.unsigned(link.size)

    def rdb_load(self, source: ModuleReader, version: int) -> Bloom | None:
        """Read a filter of any version of RedisBloom."""
        if version > _LAST_ENCODING:
            return None
        value = Bloom.__new__(Bloom)
        value.size, count = source.unsigned(), source.unsigned()
        value.options = source.unsigned() if version >= _WITH_OPTIONS else 0
        value.growth = source.unsigned() if version >= _WITH_GROWTH else 2
        value.links = []
        for _ in range(count):
            value.links.append(self._load_link(source, value.options))
        value.check()
        return value

    def _load_link(self, source: ModuleReader, options: int) -> Link:
        link = Link.__new__(Link)
        link.capacity, link.error = source.unsigned(), source.double()
        link.hashes, link.bits_per_item = source.unsigned(), source.double()
        bits = source.unsigned()
        link.power = 0 if options & _NO_ROUND else bits
        if link.power > 63:
            raise Corrupt("a link of a Bloom filter is malformed")
        link.bits = bits if options & _NO_ROUND else 1 << bits
        link.data = bytearray(source.string())
        link.size = source.unsigned()
        return link

    def copy(self, source: KeyPlace, target: KeyPlace, value: Bloom) -> Bloom:
        """Return a copy."""
        twin = Bloom.__new__(Bloom)
        twin.options, twin.growth, twin.size, twin.links = value.options, value.growth, value.size, []
        for link in value.links:
            same = Link.__new__(Link)
            for name in Link.__slots__:
                setattr(same, name, getattr(link, name))
            same.data = bytearray(link.data)
            twin.links.append(same)
        return twin

    def mem_usage(self, value: Bloom, samples: int) -> int:
        """Return the bytes of the links."""
        return value.memory()

    def free_effort(self, place: KeyPlace, value: Bloom) -> int:
        """Return the number of links."""
        return len(value.links)


# -- arguments ----------------------------------------------------------------------------------------


def _valid_rate(text: str) -> float:
    """Return the error rate in a text; ValueError if it is none."""
    rate = float(text)
    if not 0 < rate < 1:
        raise ValueError("(0 < error rate range < 1)")
    return rate


def _rate(raw: bytes, text: str) -> float:
    try:
        return float(raw)
    except ValueError:
        raise CommandError(text) from None


def _integer(raw: bytes, text: str) -> int:
    value = string2ll(raw)
    if value is None:
        raise CommandError(text)
    return int(value)


class _Options:
    """The options of a command that creates a filter; without them, the settings apply."""

    def __init__(self, context: Context) -> None:
        self.capacity: int = context.setting("initial-size")
        self.rate = float(context.setting("error-rate"))
        self.expansion: int = context.setting("expansion-factor")
        self.scaling = self.creates = True

    def create(self) -> Bloom:
        """Return a new filter."""
        return Bloom(self.capacity, self.rate, self.expansion, self.scaling)


def _existing(context: Context, name: bytes) -> Bloom:
    """Return the filter of a key; CommandError if there is none."""
    value: Bloom | None = context.key(name).get(BloomType)
    if value is None:
        raise CommandError("not found")
    return value


# -- commands -----------------------------------------------------------------------------------------


@module.command("bf.reserve", arity=-4, flags="write denyoom", keys=(1, 1, 1), complexity="O(1)",
                categories="fast write",
                syntax="key error_rate capacity [EXPANSION expansion] [NONSCALING]")  # fmt: skip
def reserve(context: Context, argv: list[bytes]) -> str:
    """Creates an empty Bloom filter."""
    if len(argv) > 7:
        raise arity_error("bf.reserve")
    options = _Options(context)
    options.rate = _rate(argv[2], "bad error rate")
    if not 0 < options.rate < 1:
        raise CommandError("(0 < error rate range < 1) ")
    options.capacity = _integer(argv[3], "bad capacity")
    if options.capacity <= 0:
        raise CommandError("(capacity should be larger than 0)")
    words = [word.upper() for word in argv]
    options.scaling = b"NONSCALING" not in words[4:]
    if b"EXPANSION" in words[4:]:
        at = words.index(b"EXPANSION", 4)
        if at + 1 == len(argv):
            raise CommandError("no expansion")
        if not options.scaling:
            raise CommandError("Nonscaling filters cannot expand")
        options.expansion = _integer(argv[at + 1], "bad expansion")
        if options.expansion < 1:
            raise CommandError("bad expansion")
    key = context.key(argv[1])
    if key.get(BloomType) is not None:
        raise CommandError("item exists")
    key.set(BloomType, options.create())
    context.replicate_verbatim()
    return "OK"


def _insert(context: Context, key: OpenKey, items: list[bytes], options: _Options) -> list[Any]:
    """Add items, and return what is replied for each: an error ends the list."""
    value: Bloom | None = key.get(BloomType)
    if value is None:
        if not options.creates:
            raise CommandError("not found")
        value = options.create()
        key.set(BloomType, value)
    replies: list[Any] = []
    try:
        for item in items:
            replies.append(value.add(item))
    except CommandError as error:
        replies.append(error)
    key.changed()
    context.replicate_verbatim()
    return replies


@module.command("bf.add", arity=3, flags="write denyoom", keys=(1, 1, 1), complexity="O(k), with k hashes",
                categories="write", syntax="key item")  # fmt: skip
def add(context: Context, argv: list[bytes]) -> Any:
    """Adds an item to a Bloom filter, which is created if it does not exist."""
    return _insert(context, context.key(argv[1]), argv[2:], _Options(context))[0]


@module.command("bf.madd", arity=-3, flags="write denyoom", keys=(1, 1, 1), categories="write",
                complexity="O(k * n), with k hashes and n items", syntax="key item [item ...]")  # fmt: skip
def madd(context: Context, argv: list[bytes]) -> list[Any]:
    """Adds items to a Bloom filter, which is created if it does not exist."""
    return _insert(context, context.key(argv[1]), argv[2:], _Options(context))


@module.command("bf.insert", arity=-4, flags="write denyoom", keys=(1, 1, 1), categories="write",
                complexity="O(k * n), with k hashes and n items",
                syntax="key [CAPACITY capacity] [ERROR error] [EXPANSION expansion] [NOCREATE] [NONSCALING] "
                       "ITEMS item [item ...]")  # fmt: skip
def insert(context: Context, argv: list[bytes]) -> list[Any]:
    """Adds items to a Bloom filter, which is created with the given options if it does not exist."""
    options, at = _Options(context), 2
    while at < len(argv) and argv[at].upper() != b"ITEMS":
        word = argv[at].upper()
        if word in (b"CAPACITY", b"ERROR", b"EXPANSION"):
            if at + 1 == len(argv):
                raise arity_error("bf.insert")
            if word == b"ERROR":
                options.rate = _rate(argv[at + 1], "Bad error rate")
            else:
                number = _integer(argv[at + 1], f"Bad {word.decode().lower()}")
                setattr(options, word.decode().lower(), number)
            at += 1
        elif word == b"NOCREATE":
            options.creates = False
        elif word == b"NONSCALING":
            options.scaling = False
        else:
            raise CommandError("Unknown argument received")
        at += 1
    if at + 1 >= len(argv):
        raise arity_error("bf.insert")
    if not 0 < options.rate < 1 or options.capacity < 1 or options.expansion < 1:
        raise CommandError("Bad argument received")
    return _insert(context, context.key(argv[1]), argv[at + 1 :], options)


@module.command("bf.exists", arity=3, flags="readonly fast", keys=(1, 1, 1), complexity="O(k), with k hashes",
                access="RO access", categories="read fast", syntax="key item")  # fmt: skip
def exists(context: Context, argv: list[bytes]) -> bool:
    """Returns whether an item may have been added to a Bloom filter."""
    value = context.key(argv[1]).get(BloomType)
    return value is not None and argv[2] in value


@module.command("bf.mexists", arity=-3, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read",
                complexity="O(k * n), with k hashes and n items", syntax="key item [item ...]")  # fmt: skip
def mexists(context: Context, argv: list[bytes]) -> list[bool]:
    """Returns for each item whether it may have been added to a Bloom filter."""
    value = context.key(argv[1]).get(BloomType)
    return [value is not None and item in value for item in argv[2:]]


@module.command("bf.card", arity=2, flags="readonly fast", keys=(1, 1, 1), complexity="O(1)", access="RO access",
                categories="read fast", syntax="key")  # fmt: skip
def card(context: Context, argv: list[bytes]) -> int:
    """Returns the number of items that changed a bit of a Bloom filter."""
    value = context.key(argv[1]).get(BloomType)
    return 0 if value is None else value.size


_FACTS = {
    b"CAPACITY": "Capacity", b"SIZE": "Size", b"FILTERS": "Number of filters", b"ITEMS": "Number of items inserted",
    b"EXPANSION": "Expansion rate",
}  # fmt: skip


@module.command("bf.info", arity=-2, flags="readonly fast", keys=(1, 1, 1), complexity="O(1)", access="RO access",
                categories="read fast",
                syntax="key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]")  # fmt: skip
def info(context: Context, argv: list[bytes]) -> Any:
    """Returns the facts of a Bloom filter, or one of them."""
    if len(argv) > 3:
        raise arity_error("bf.info")
    value = _existing(context, argv[1])
    facts = dict(zip(_FACTS.values(), (
        value.capacity, value.memory(), len(value.links), value.size, value.growth if value.scaling else None,
    ), strict=True))  # fmt: skip
    if len(argv) == 2:
        return facts
    name = _FACTS.get(argv[2].upper())
    if name is None:
        raise CommandError("Invalid information value")
    return [facts[name]]


# -- chunks -------------------------------------------------------------------------------------------


@module.command("bf.scandump", arity=3, flags="readonly", keys=(1, 1, 1), complexity="O(n) for n bytes",
                access="RO access", categories="read", syntax="key iterator")  # fmt: skip
def scandump(context: Context, argv: list[bytes]) -> list[Any]:
    """Returns the next part of a Bloom filter, and the iterator for BF.LOADCHUNK and for the next call."""
    value = _existing(context, argv[1])
    iterator = _integer(argv[2], "Second argument must be numeric")
    if iterator == 0:
        return [1, _encoded_header(value)]
    found = _find(value, iterator)
    if found is None:
        return [0, b""]
    link, offset = found
    chunk = bytes(link.data[offset : offset + _CHUNK])
    return [iterator + len(chunk), chunk]


@module.command("bf.loadchunk", arity=4, flags="write denyoom", keys=(1, 1, 1), complexity="O(n) for n bytes",
                categories="write", syntax="key iterator data")  # fmt: skip
def loadchunk(context: Context, argv: list[bytes]) -> str:
    """Loads a part of a Bloom filter that BF.SCANDUMP returned."""
    iterator, data = _integer(argv[2], "Second argument must be numeric"), argv[3]
    key = context.key(argv[1])
    value: Bloom | None = key.get(BloomType)
    if value is None:
        if iterator != 1:
            raise CommandError("not found")
        try:
            key.set(BloomType, _decoded_header(data))
        except (Corrupt, struct.error):
            raise CommandError("received bad data") from None
    else:
        if iterator <= 0 or iterator < len(data):
            raise CommandError("received bad data")
        found = _find(value, iterator - len(data))
        if found is None:
            raise CommandError("invalid offset - no link found")
        link, offset = found
        if len(data) > len(link.data) - offset:
            raise CommandError("invalid chunk - Too big for current filter")
        link.data[offset : offset + len(data)] = data
        key.changed()
    context.replicate_verbatim()
    return "OK"


def _find(value: Bloom, iterator: int) -> tuple[Link, int] | None:
    """Return the link and the offset that an iterator denotes; None behind the last byte."""
    at = iterator - 1
    if at < 0:
        return None
    for link in value.links:
        if at < len(link.data):
            return link, at
        at -= len(link.data)
    return None


def _encoded_header(value: Bloom) -> bytes:
    """Return everything about a filter but its bits (SBChain_GetEncodedHeader)."""
    head = _HEADER.pack(value.size, len(value.links), value.options, value.growth)
    return head + b"".join(
        _LINK_HEADER.pack(len(link.data), link.bits, link.size, link.error, link.bits_per_item, link.hashes,
                          link.capacity, link.power)
        for link in value.links
    )  # fmt: skip


def _decoded_header(data: bytes) -> Bloom:
    """Return the empty filter that a header describes; Corrupt or struct.error if it is malformed."""
    value = Bloom.__new__(Bloom)
    value.size, count, value.options, value.growth = _HEADER.unpack(data[: _HEADER.size])
    if len(data) != _HEADER.size + count * _LINK_HEADER.size:
        raise Corrupt("the header has another size")
    value.links = []
    total = 0
    for at in range(_HEADER.size, len(data), _LINK_HEADER.size):
        link = Link.__new__(Link)
        (size, link.bits, link.size, link.error, link.bits_per_item, link.hashes, link.capacity,
         link.power) = _LINK_HEADER.unpack_from(data, at)  # fmt: skip
        total += size
        if total > _MOST_BYTES or size * 8 != link.bits:
            raise Corrupt("the filter is too large")
        link.data = bytearray(size)
        value.links.append(link)
    value.check()
    return value
