"""The elements of the values in an RDB file, one by one: the table `elements` of rdb_tables.

    type      rows                          field      value      index      score
    string    one                                      text
    list      one for each element                     element    position
    set       one for each member                      member
    zset      one for each member                      member                score
    hash      one for each field            name       value
    array     one for each value                       value      position    (from 2^63 on: the field, as text)

Values that the file stores element by element are read in the same way, so a large value needs memory for one element.
A packed block (listpack, ziplist, intset, zipmap) is decoded as a whole: servers keep them small. Every block is
validated. Streams have tables of their own, and the values of modules have no elements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rillet.errors import Corrupt
from rillet.persistence.rdb.value_sizes import array_values
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist
from rillet.structs.zipmap import read_zipmap
from rillet.types.rdb.primitives import RdbReader

_SPECIAL_SCORES = {253: float("nan"), 254: float("inf"), 255: float("-inf")}


class Element(NamedTuple):
    """One element of a value: its position in a list, its field in a hash, its text, its score in a sorted set."""

    position: int | None = None
    field: bytes | None = None
    value: bytes = b""
    score: float | None = None


def elements(reader: RdbReader, kind: str, form: str, valkey: bool) -> Iterator[Element]:
    """Yield the elements of the value at the reader's position, of a type and a form (value_sizes.FORMS)."""
    if form == "text":
        yield Element(value=reader.string())
    elif form in ("quicklist", "ziplists"):
        yield from _quicklist(reader, form)
    elif form == "cells":
        for index, value in array_values(reader):
            small = index < 1 << 63
            yield Element(index if small else None, None if small else b"%d" % index, value)
    elif form in ("items", "pairs", "scores", "old scores") or form.startswith("expiring"):
        yield from _singly(reader, kind, form, valkey)
    else:
        if form.endswith("since"):
            reader.raw(8)
        yield from _of_block(kind, form, _texts(bytes(reader.buffer()), form))


def _singly(reader: RdbReader, kind: str, form: str, valkey: bool) -> Iterator[Element]:
    """Yield the elements of a value that the file stores as a count and the elements."""
    if form.endswith("since"):
        reader.raw(8)
    expiring = form.startswith("expiring")
    for index in range(reader.length()):
        if expiring and not valkey:  # Redis writes a field's expiry before the field, Valkey after its value
            reader.length()
        text = reader.string()
        if form == "pairs" or expiring:
            value = reader.string()
            if expiring and valkey:
                reader.raw(8)
            yield Element(field=text, value=value)
        elif form == "scores":
            yield Element(value=text, score=struct.unpack("<d", reader.raw(8))[0])
        elif form == "old scores":
            yield Element(value=text, score=_old_score(reader))
        else:
            yield Element(position=index if kind == "list" else None, value=text)


def _old_score(reader: RdbReader) -> float:
    """Read a score as versions before 4.0 wrote it: a length and its digits, or a special length."""
    length = reader.byte()
    if length in _SPECIAL_SCORES:
        return _SPECIAL_SCORES[length]
    return _number(bytes(reader.raw(length)))


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        raise Corrupt(f"the score of a member must be a number, not {text[:40]!r}") from None


def _quicklist(reader: RdbReader, form: str) -> Iterator[Element]:
    index = 0
    for _ in range(reader.length()):
        plain = form == "quicklist" and reader.length() == 1
        block = bytes(reader.buffer())
        for text in [block] if plain else _texts(block, "ziplist" if form == "ziplists" else "listpack"):
            yield Element(position=index, value=text)
            index += 1


def _texts(block: bytes, form: str) -> list[bytes]:
    """Return the items of a packed block as texts."""
    if form == "ziplist":
        return read_ziplist(block)
    if form == "zipmap":
        return read_zipmap(block)
    if form == "intset":
        width, count = int.from_bytes(block[:4], "little"), int.from_bytes(block[4:8], "little")
        if width not in (2, 4, 8) or len(block) != 8 + width * count:
            raise Corrupt("intset: not a valid intset")
        return [
            b"%d" % int.from_bytes(block[at : at + width], "little", signed=True) for at in range(8, len(block), width)
        ]
    return Listpack.from_bytes(block).texts()


def _of_block(kind: str, form: str, texts: list[bytes]) -> Iterator[Element]:
    """Yield the elements of a packed block by the type of the key."""
    each = 3 if form.startswith("listpack of three") else 2 if kind in ("hash", "zset") else 1
    if len(texts) % each:
        raise Corrupt(f"a {kind} has {len(texts)} items in its packed block, which is not a multiple of {each}")
    for at in range(0, len(texts), each):
        if kind == "hash":
            yield Element(field=texts[at], value=texts[at + 1])
        elif kind == "zset":
            yield Element(value=texts[at], score=_number(texts[at + 1]))
        else:
            yield Element(position=at if kind == "list" else None, value=texts[at])
