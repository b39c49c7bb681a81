"""The model of these tests: entries as Python lists, their RESP, and the expected columns."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Entry = tuple[int, int, list[tuple[bytes, bytes]]]

U64 = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 9223372036854775, 9223372036854776])
)
NAMES = st.one_of(st.sampled_from([b"user", b"amount", b"n", b"17", "größe".encode(), b"\xff"]), st.binary(max_size=12))
VALUES = st.one_of(
    st.binary(max_size=80),
    st.integers(-(2**63), 2**63 - 1).map(b"%d".__mod__),
    st.text(max_size=20).map(str.encode),
    st.floats(allow_nan=False).map(lambda value: repr(value).encode()),
    st.sampled_from([b"", b"true", b"2013-01-01", b"\xed\xa0\x80"]),
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=8)
ENTRIES = st.lists(st.tuples(U64, U64, FIELDS), max_size=12)


def rising(entries: list[Entry]) -> list[Entry]:
    """Return the entries in order of their IDs, each once, without 0-0."""
    byid = {entry[:2]: entry for entry in entries if entry[:2] != (0, 0)}
    return [byid[key] for key in sorted(byid)]


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def reply(entries: list[Entry]) -> bytes:
    """Return the answer to XRANGE."""
    parts = [b"*%d\r\n" % len(entries)]
    for ms, seq, fields in entries:
        parts.append(b"*2\r\n" + bulk(b"%d-%d" % (ms, seq)) + b"*%d\r\n" % (2 * len(fields)))
        parts += [bulk(name) + bulk(value) for name, value in fields]
    return b"".join(parts)


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def expected_default(key: bytes, entries: list[Entry]) -> list[dict[str, Any]]:
    """Return the rows of the default columns, the timestamp as microseconds."""
    rows = []
    for ms, seq, fields in entries:
        last = {text(name): text(value) for name, value in fields}
        rows.append(
            {
                "stream": text(key),
                "id": f"{ms}-{seq}",
                "id_ms": signed(ms),
                "id_seq": signed(seq),
                "timestamp": ms * 1000 if ms * 1000 < 2**63 else None,
                "fields": list(last.items()),
            }
        )
    return rows
