"""The link to a master without a socket: whole transcripts, at once and byte by byte."""

from __future__ import annotations

import pytest

from rillet.replication.errors import LinkError
from rillet.replication.handshake import (
    Continued,
    Event,
    FullSync,
    LinkOptions,
    MasterLink,
    Note,
    Position,
    SnapshotBegin,
    SnapshotData,
    SnapshotEnd,
    StreamData,
    encode,
)

ID = "8" * 40
MARK = b"a1" * 20
PLAIN = LinkOptions(port=7000)
CAPABILITIES = encode(b"REPLCONF", b"capa", b"eof", b"capa", b"psync2", b"capa", b"rillet-8.10.0")
GREETING = b"+PONG\r\n+OK\r\n+OK\r\n"


def run(data: bytes, step: int, options: LinkOptions = PLAIN, position: Position | None = None
        ) -> tuple[list[Event], bytes]:  # fmt: skip
    """Feed the bytes of a master in pieces; return the events, with joined data, and what the replica sent."""
    link = MasterLink(options, position)
    sent = link.outgoing()
    found: list[Event] = []
    for at in range(0, len(data), step):
        for event in link.receive(data[at : at + step]):
            if isinstance(event, Note):
                continue
            last = found[-1] if found else None
            if isinstance(event, SnapshotData) and isinstance(last, SnapshotData):
                found[-1] = SnapshotData(last.data + event.data)
            elif isinstance(event, StreamData) and isinstance(last, StreamData):
                found[-1] = StreamData(last.data + event.data)
            else:
                found.append(event)
        sent += link.outgoing()
    return found, sent


@pytest.mark.parametrize("step", [1, 2, 3, 7, 39, 40, 41, 10_000])
def test_a_snapshot_with_a_mark(step: int) -> None:
    # The payload contains the beginning of the mark, twice, just before the mark.
    payload = b"REDIS0010" + MARK[:39] + b"x" + MARK[:20] + MARK[:5]
    data = GREETING + b"\n\n+FULLRESYNC " + ID.encode() + b" 5\r\n\n\n$EOF:" + MARK + b"\r\n" + payload + MARK
    data += b"*1\r\n"
    events, sent = run(data, step)
    assert events == [FullSync(ID, 5), SnapshotBegin(-1), SnapshotData(payload), SnapshotEnd(), StreamData(b"*1\r\n")]
    assert sent == (
        encode(b"PING") + encode(b"REPLCONF", b"listening-port", b"7000")
        + CAPABILITIES + encode(b"PSYNC", b"?", b"-1")
    )  # fmt: skip


@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_a_snapshot_with_a_size(step: int) -> None:
    payload = bytes(range(256))
    data = GREETING + b"+FULLRESYNC " + ID.encode() + b" 0\r\n$256\r\n" + payload + b"stream"
    events, _ = run(data, step)
    assert events == [FullSync(ID, 0), SnapshotBegin(256), SnapshotData(payload), SnapshotEnd(), StreamData(b"stream")]


@pytest.mark.parametrize("step", [1, 10_000])
def test_a_partial_resynchronisation(step: int) -> None:
    for name in ("", ID):
        data = GREETING + b"+CONTINUE" + (b" " + name.encode() if name else b"") + b"\r\nstream"
        events, sent = run(data, step, position=Position("7" * 40, 99))
        assert events == [Continued(name), StreamData(b"stream")]
        assert sent.endswith(encode(b"PSYNC", b"7" * 40, b"100"))


def test_everything_that_a_replica_may_say() -> None:
    options = LinkOptions(b"me", b"secret", 1, b"10.0.0.1", b"9.1.0", True, True)
    data = b"-NOAUTH first\r\n" + b"+OK\r\n" * 3 + b"-ERR Unrecognized REPLCONF option\r\n+OK\r\n-ERR no\r\n"
    _, sent = run(data, 10_000, options, Position(ID, 1))
    assert sent == (
        encode(b"PING") + encode(b"AUTH", b"me", b"secret") + encode(b"REPLCONF", b"listening-port", b"1")
        + encode(b"REPLCONF", b"ip-address", b"10.0.0.1")
        + encode(b"REPLCONF", b"rdb-no-compress", b"1", b"rdb-no-checksum", b"1")
        + CAPABILITIES + encode(b"REPLCONF", b"version", b"9.1.0")
        + encode(b"PSYNC", ID.encode(), b"2", b"FAILOVER")
    )  # fmt: skip


def test_an_old_master_without_psync() -> None:
    data = b"+PONG\r\n-ERR a\r\n-ERR b\r\n-ERR unknown command 'PSYNC'\r\n$3\r\nRDB*1\r\n"
    events, sent = run(data, 10_000)
    assert events == [FullSync("", -1), SnapshotBegin(3), SnapshotData(b"RDB"), SnapshotEnd(), StreamData(b"*1\r\n")]
    assert sent.endswith(encode(b"SYNC"))


@pytest.mark.parametrize(("data", "reason"), [
    (b"-ERR max number of clients reached\r\n", "Error reply to PING"),
    (b"+PONG\r\n+OK\r\n+OK\r\n-LOADING Redis is loading\r\n", "currently unable to PSYNC"),
    (b"+PONG\r\n+OK\r\n+OK\r\n-NOMASTERLINK Can't SYNC\r\n", "currently unable to PSYNC"),
    (GREETING + b"+FULLRESYNC x 1\r\n", "wrong \\+FULLRESYNC syntax"),
    (GREETING + b"+FULLRESYNC " + ID.encode() + b" 1\r\n-ERR no memory\r\n", "aborted replication"),
    (GREETING + b"+FULLRESYNC " + ID.encode() + b" 1\r\nHTTP/1.1\r\n", "Bad protocol from MASTER"),
    (b"x" * 70_000, "too long"),
])  # fmt: skip
def test_a_master_that_refuses(data: bytes, reason: str) -> None:
    with pytest.raises(LinkError, match=reason):
        run(data, 10_000)


def test_a_wrong_password() -> None:
    with pytest.raises(LinkError, match="Unable to AUTH to MASTER: -WRONGPASS"):
        run(b"-NOAUTH x\r\n-WRONGPASS invalid\r\n", 1, LinkOptions(password=b"x"))
