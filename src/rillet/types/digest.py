"""Digests of values and data sets, equal to those of DEBUG DIGEST (Redis: debug.c).

Two data sets with the same content have the same digest, independent of key order and of the Redis version (except
for scores, whose text changed in 7.2), so tests compare digests. Two operations on 20 bytes build a digest:

    xor(digest, data)   digest ^= SHA1(data)                   order does not matter
    mix(digest, data)   digest = SHA1(digest ^ SHA1(data))     order matters

A value mixes its type number (four bytes, big-endian) and its parts: a string its bytes, a list its elements, an array
the value at each index ("(null)" if there is none), a stream for each entry "ms.seq" and its fields and values. A set
xors its members, a hash the mix of each field and its value (since 7.4 xored with the text "!!hexpire!!" if the field
expires), a sorted set the mix of each member and its score, a module's value the digest that its type computes. An
expiry then xors the text "!!expire!!". A key's digest mixes its name and its value. A data set mixes each database's
number and xors the digests of its keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha1

from rillet.structs import float_text
from rillet.types.array import Array
from rillet.types.compat import NEWEST, Compat
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import MODULE_DIGEST, NOWHERE, KeyPlace, ModuleValue
from rillet.types.set import Set
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.stream import Stream
from rillet.types.string import String
from rillet.types.zset import Zset

ZERO = bytes(20)
_LAST = 2**64 - 1


def xor(digest: bytes, data: bytes) -> bytes:
    """Return the digest after adding data independent of order (debug.c: xorDigest)."""
    hashed = int.from_bytes(sha1(data, usedforsecurity=False).digest(), "big")
    return (int.from_bytes(digest, "big") ^ hashed).to_bytes(20, "big")


def mix(digest: bytes, data: bytes) -> bytes:
    """Return the digest after adding data in order (debug.c: mixDigest)."""
    return sha1(xor(digest, data), usedforsecurity=False).digest()


def value_digest(
    value: object,
    expires: bool,
    digest: bytes = ZERO,
    compat: Compat = NEWEST,
    now: int = 0,
    place: KeyPlace = NOWHERE,
) -> bytes:
    """Return the digest after adding a value (debug.c: xorObjectDigest). O(size of the value)

    now: the time in ms; Valkey omits fields of hashes that have expired.
    place: the database and the key of the value, for modules.
    """
    if isinstance(value, String):
        digest = mix(mix(digest, bytes(4)), value.value())
    elif isinstance(value, List):
        digest = mix(digest, b"\0\0\0\1")
        for element in value.elements:
            digest = mix(digest, element)
    elif isinstance(value, Set):
        digest = mix(digest, b"\0\0\0\2")
        for member in value:
            digest = xor(digest, member)
    elif isinstance(value, Hash):
        digest = mix(digest, b"\0\0\0\4")
        marks = compat.knows(74)
        for field, content, when in value.rows():
            if 0 < when < now and compat.valkey:
                continue
            one = mix(mix(ZERO, field), content)
            digest = xor(digest, xor(one, b"!!hexpire!!") if when and marks else one)
    elif isinstance(value, Zset):
        digest = mix(digest, b"\0\0\0\3")
        for member, score in value:
            text = float_text.shortest(score) if compat.knows(72) else float_text.digits_17(score)
            digest = xor(digest, mix(mix(ZERO, member), text))
    elif isinstance(value, Array):
        digest = mix(digest, b"\0\0\0\7")
        following = 0
        for index, content in value.cells.items():
            for _ in range(following, index):
                digest = mix(digest, b"(null)")
            digest = mix(digest, content)
            following = index + 1
    elif isinstance(value, ModuleValue):
        digest = mix(digest, MODULE_DIGEST)
        found = value.digest_of(place)
        digest = digest if found is None else xor(digest, found)
    else:
        assert isinstance(value, Stream)
        digest = mix(digest, b"\0\0\0\6")
        entries = StreamIterator(value, 0, 0, _LAST, _LAST, False)
        while entries.next_entry():
            digest = mix(digest, b"%d.%d" % (entries.ms, entries.seq))
            for part in entries.fields():
                digest = mix(digest, part)
    return xor(digest, b"!!expire!!") if expires else digest


def data_digest(
    databases: Iterable[tuple[int, Iterable[tuple[bytes, object, bool]]]], compat: Compat = NEWEST, now: int = 0
) -> bytes:
    """Return the digest of non-empty databases, each (number, keys); a key is (name, value, whether it expires)."""
    final = ZERO
    for index, keys in databases:
        final = mix(final, index.to_bytes(4, "big"))
        for name, value, expires in keys:
            final = xor(final, value_digest(value, expires, mix(ZERO, name), compat, now, KeyPlace(index, name)))
    return final
