"""Hostile input for the columns: replies and stream nodes that are valid, then damaged in one place or in many.

    reply(rng)    RESP bytes of a reply to XRANGE: mutated lengths, types, null values, nested arrays, cuts
    node(rng)     (master ID, listpack bytes) of a stream node: false counts, sizes, backlens and deltas
    page(rng)     RESP bytes of a reply to RILLET.XNODES that contains such nodes
    value(rng)    the text of a field: numbers near every limit, moments, words, bytes that are not UTF-8

The valid ones come from a pool, which its seed selects. All choices come from `rng`, so two seeds name an input.
"""

from __future__ import annotations

import random
import re
import struct
from functools import lru_cache

NUMBERS = (
    0, 1, -1, 7, 63, 64, 127, 128, 255, 256, 4095, 4096, -4096, -4097, 32767, 32768, -32769, 2**23, -(2**23) - 1,
    2**31 - 1, 2**31, -(2**31) - 1, 2**32 - 1, 2**32, 9223372036854775, 9223372036854776, 2**63 - 1, -(2**63),
)  # fmt: skip
LENGTHS = (
    b"-1", b"-2", b"0", b"1", b"2", b"3", b"16", b"65536", b"4294967295", b"4294967296", b"1099511627776", b"007",
    b"1099511627777", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"9" * 40, b"", b"+1",
)  # fmt: skip
NAMES = (b"user", b"amount", b"n", b"17", b"ok", b"day", b"at", b"j", b"raw", b"d", b"\xff", b"", b"x" * 70)
WORDS = (
    b"", b"0", b"-0", b"007", b"+7", b"1.5", b"-.5", b"5.", b".", b"-", b"1e400", b"1e-400", b"nan", b"-inf", b"NaN",
    b"Infinity", b"true", b"no", b"2013-01-01", b"2013-02-30", b"9999-12-31T23:59:59.999999+18:00", b"0000-00-00",
    b"2013-01-01T05:15:00,123456789 UTC", b"0001-01-01", b'{"a": 1}', b'{"a": 1e999}', b"[1, null]", b'"\\ud800"',
    b"[" * 3000, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"a\xffb", "größe".encode(), b"12345678901234567890",
    b"99999999999999999.995", b"1" * 400, b"123456789.123456789", b" 7\x00", b"1e99999999999999999999",
)  # fmt: skip
IDS = (
    b"1526919030474-0", b"1-1", b"0-0", b"007-1", b"7-010", b"18446744073709551615-18446744073709551615", b"-1", b"1-",
    b"18446744073709551616-0", b"1-18446744073709551616", b"12345678901234567890-1", b"1", b"", b"1-1-1", b"a-b",
)  # fmt: skip
INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")


def bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def value(rng: random.Random) -> bytes:
    """Return the text of a field."""
    kind = rng.randrange(8)
    if kind == 0:
        return b"%d" % (rng.choice(NUMBERS) + rng.randrange(-2, 3))
    if kind == 1:
        return repr(rng.choice((rng.random(), rng.uniform(-1e300, 1e300), rng.randrange(10**9) / 1000))).encode()
    if kind == 2:
        return rng.randbytes(rng.choice((1, 7, 8, 9, 15, 16, 17, 63, 64, 300)))
    if kind == 3:
        return bytes(rng.choices(b"0123456789+-.eE TZ:", k=rng.randrange(1, 30)))
    word = rng.choice(WORDS)
    return mutated(rng, word) if kind == 4 else word


# ---- replies -------------------------------------------------------------------------------------------------------


def valid_reply(rng: random.Random) -> bytes:
    """Return a reply whose entries mostly have the same fields; some entries are deleted."""
    entries = rng.randrange(6)
    names = rng.choices(NAMES, k=rng.randrange(1, 7))
    parts = [b"*%d\r\n" % entries]
    for number in range(entries):
        unusual = rng.random() < 0.15
        parts.append(b"*2\r\n" + bulk(rng.choice(IDS[:6]) if unusual else b"1526919030%d-%d" % (400 + number, number)))
        if rng.random() < 0.08:
            parts.append(rng.choice((b"*-1\r\n", b"$-1\r\n", b"_\r\n")))
            continue
        if rng.random() < 0.2:
            names = rng.choices(NAMES, k=rng.randrange(1, 7))
        parts.append(b"*%d\r\n" % (2 * len(names)) + b"".join(bulk(name) + bulk(value(rng)) for name in names))
    return b"".join(parts)


@lru_cache(maxsize=4)
def _replies(pool: int) -> tuple[bytes, ...]:
    rng = random.Random(pool)
    return tuple(valid_reply(rng) for _ in range(1000))


@lru_cache(maxsize=4)
def _nodes(pool: int) -> tuple[tuple[int | bytes, ...], ...]:
    rng = random.Random(pool)
    return tuple(tuple(node_items(rng)) for _ in range(1000))


def reply(rng: random.Random, pool: int) -> bytes:
    """Return a reply of the pool (a seed), or two, with up to four mutations."""
    data = rng.choice(_replies(pool))
    if rng.random() < 0.2:
        data += rng.choice(_replies(pool))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        data = mutated_reply(rng, data)
    return data


def mutated_reply(rng: random.Random, data: bytes) -> bytes:
    """Return the reply with one length, type, ID or element replaced, or with damage that ignores the protocol."""
    kind = rng.randrange(7)
    if kind == 0 or not data:
        return mutated(rng, data)
    lines = data.split(b"\r\n")
    at = rng.randrange(len(lines))
    line = lines[at]
    if kind == 1 and line[:1] in b"*$":
        lines[at] = line[:1] + rng.choice(LENGTHS)
    elif kind == 2 and line:
        lines[at] = rng.choice((b"*", b"$", b":", b"+", b"-", b"%", b"_", b"~", b"#", b",")) + line[1:]
    elif kind == 3:
        lines[at] = rng.choice(IDS)
    elif kind == 4:
        lines.insert(at, rng.choice((b"*1", b"*2", b"*-1", b"$-1", b"_", b"*0", b"-ERR no", b"$1", b":5", b"*1000000")))
    elif kind == 5:
        del lines[at : at + rng.randrange(1, 3)]
    else:
        lines[at] = value(rng)
    return b"\r\n".join(lines)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes with one piece flipped, removed, repeated, inserted or cut off."""
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 4, 16))
    kind = rng.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + size :]
    if kind == 2:
        return data[:at] + data[at : at + size] * 2 + data[at + size :]
    if kind == 3:
        return data[:at] + rng.randbytes(size) + data[at:]
    if kind == 4:
        return data[:at] + rng.choice((b"\x00", b"\x7f", b"\x80", b"\xff", b"\r", b"\n", b"*", b"$")) + data[at + 1 :]
    return data[:at] + rng.randbytes(size) + data[at + size :]


# ---- nodes ---------------------------------------------------------------------------------------------------------


def backlen(n: int) -> bytes:
    """Return the backlen of n bytes (listpack.c: lpEncodeBacklen)."""
    if n <= 127:
        return bytes([n])
    groups = 2 + (n >= 16383) + (n >= 2097151) + (n >= 268435455)
    return bytes(((n >> (7 * (groups - 1 - i))) & 0x7F) | (0x80 if i else 0) for i in range(groups))


@lru_cache(maxsize=1 << 14)
def box(item: int | bytes, width: int = 0) -> bytes:
    """Return a listpack element; `width` selects a wider encoding than the smallest: 1 to 4, by size."""
    if isinstance(item, int) and not -(2**63) <= item < 2**63:
        item = b"%d" % item  # beyond 64 bits, only a string can hold it
    if isinstance(item, int):
        fits = (0 <= item < 128, -4096 <= item < 4096, -(2**15) <= item < 2**15, -(2**23) <= item < 2**23,
                -(2**31) <= item < 2**31, True)  # fmt: skip
        form = max(fits.index(True), min(width + 1, 5) if width else 0)
        if form == 0:
            head = bytes([item])
        elif form == 1:
            head = bytes([0xC0 | (item >> 8) & 0x1F, item & 0xFF])
        else:
            size = (2, 3, 4, 8)[form - 2]
            head = bytes([0xEF + form]) + (item & (1 << 8 * size) - 1).to_bytes(size, "little")
    elif len(item) < 64 and width == 0:
        head = bytes([0x80 | len(item)]) + item
    elif len(item) < 4096 and width < 2:
        head = bytes([0xE0 | len(item) >> 8, len(item) & 0xFF]) + item
    else:
        head = b"\xf0" + struct.pack("<I", len(item)) + item
    return head + backlen(len(head))


def listpack(boxes: list[bytes], total: int | None = None, count: int | None = None) -> bytes:
    """Return the elements with a header and the end byte; total and count replace the true ones."""
    body = b"".join(boxes)
    if total is None:
        total = len(body) + 7
    if count is None:
        count = min(len(boxes), 65535)
    return struct.pack("<IH", total, count) + body + b"\xff"


def smallest(word: bytes) -> int | bytes:
    """Return the integer that a listpack stores in place of its decimal text, otherwise the word."""
    whole = INTEGER.fullmatch(word)
    return int(word) if whole and -(2**63) <= int(word) < 2**63 else word


def node_items(rng: random.Random) -> list[int | bytes]:
    """Return the elements of a sound node: a master entry, then entries with its fields or with their own."""
    names = rng.choices(NAMES, k=rng.randrange(5))
    items: list[int | bytes] = [0, 0, len(names), *map(smallest, names), 0]
    living = deleted = 0
    for number in range(rng.randrange(7)):
        gone = rng.random() < 0.15
        same = rng.random() < 0.7
        deltas = (number * 3, number) if rng.random() < 0.8 else (rng.choice(NUMBERS), rng.choice(NUMBERS))
        items += [gone + 2 * same, *deltas]
        if same:
            items += [smallest(value(rng)) for _ in names]
            items.append(len(names) + 3)
        else:
            own = rng.choices(NAMES, k=rng.randrange(4))
            items.append(len(own))
            items += [smallest(word) for name in own for word in (name, value(rng))]
            items.append(2 * len(own) + 4)
        deleted += gone
        living += not gone
    items[0], items[1] = living, deleted
    return items


def node(rng: random.Random, pool: int) -> tuple[bytes, bytes]:
    """Return the key and the listpack of a node of the pool (a seed), sound or damaged."""
    items = list(rng.choice(_nodes(pool)))
    damage = rng.choice((0, 0, 1, 1, 2, 3))
    widths = [0] * len(items)
    total = count = None
    for _ in range(damage):
        kind = rng.randrange(8)
        at = rng.randrange(len(items))
        if kind == 0:
            items[at] = rng.choice((-1, -(2**63), 2**63, 2**64, 10**30, 65536, 2**31, 3, 4, 5))
        elif kind == 1:
            items[at] = rng.choice(WORDS)
        elif kind == 2:
            del items[at], widths[at]
            if not items:
                items, widths = [0], [0]
        elif kind == 3:
            items.insert(at, rng.choice(NUMBERS))
            widths.insert(at, 0)
        elif kind == 4:
            total = rng.choice((0, 6, 7, 2**32 - 1, 1000, 20))
        elif kind == 5:
            count = rng.choice((0, 1, 65535, 65534))
        else:
            widths[at] = rng.randrange(5)
    boxes = [box(item, width) for item, width in zip(items, widths, strict=True)]
    if rng.random() < 0.15:  # a backlen that contradicts its element
        at = rng.randrange(len(boxes))
        boxes[at] = boxes[at][:-1] + rng.randbytes(rng.choice((0, 1, 2)))
    data = listpack(boxes, total, count)
    if rng.random() < 0.15:
        data = mutated(rng, data)
    if rng.random() < 0.05:
        at = rng.randrange(6, max(7, len(data)))
        data = data[:at] + rng.choice((b"\xf0\xff\xff\xff\xff", b"\xef\xff", b"\xf4", b"\xf5", b"\xfe")) + data[at:]
    if rng.random() < 0.5 and total is None and len(data) >= 7:  # most damage must get past the size in the header
        data = struct.pack("<I", len(data)) + data[4:]
    master = rng.choice(((0, 0), (1526919030400, 0), (2**64 - 1, 2**64 - 2), (2**63, 2**63)))
    return struct.pack(">QQ", *master), data


def page(rng: random.Random, pool: int) -> bytes:
    """Return a reply to RILLET.XNODES: the ID to continue after, the stream's first ID, then keys and nodes."""
    nodes = [node(rng, pool) for _ in range(rng.randrange(4))]
    words: list[bytes | None] = [rng.choice((None, *IDS)) if rng.random() < 0.3 else b"5-5", b"1-1"]
    for key, data in nodes:
        words += [key if rng.random() < 0.95 else key[:-1], data if rng.random() < 0.97 else None]
    data = b"*%d\r\n" % len(words) + b"".join(b"$-1\r\n" if word is None else bulk(word) for word in words)
    return mutated_reply(rng, data) if rng.random() < 0.5 else data
