"""The second link to a master without a socket, and the buffer of the stream that comes meanwhile."""

from __future__ import annotations

import random

import pytest

from rillet.replication.channel_handshake import ChannelLink
from rillet.replication.errors import LinkError
from rillet.replication.handshake import (
    ChannelOffered,
    Event,
    FullSync,
    LinkOptions,
    MasterLink,
    Position,
    SnapshotBegin,
    SnapshotData,
    SnapshotEnd,
    StreamData,
    encode,
)
from rillet.replication.sync_buffer import BLOCK, SyncBuffer

ID = "8" * 40
MARK = b"a1" * 20
PLAIN = LinkOptions(port=7000, rdb_channel=True)
REPLCONF = [b"REPLCONF", b"capa", b"eof", b"rdb-only", b"1", b"rdb-channel", b"1", b"main-ch-client-id", b"17",
            b"listening-port", b"7000"]  # fmt: skip
SNAPSHOT = b"+FULLRESYNC " + ID.encode() + b" 5\r\n"


def run(link: ChannelLink | MasterLink, data: bytes, step: int) -> tuple[list[Event], bytes]:
    """Feed the bytes of a master in pieces; return the events, with joined data, and what the replica sent."""
    sent = link.outgoing()
    found: list[Event] = []
    for at in range(0, len(data), step):
        for event in link.receive(data[at : at + step]):
            last = found[-1] if found else None
            if isinstance(event, SnapshotData) and isinstance(last, SnapshotData):
                found[-1] = SnapshotData(last.data + event.data)
            elif isinstance(event, StreamData) and isinstance(last, StreamData):
                found[-1] = StreamData(last.data + event.data)
            else:
                found.append(event)
        sent += link.outgoing()
    return found, sent


@pytest.mark.parametrize("step", [1, 2, 3, 39, 40, 41, 10_000])
def test_a_snapshot(step: int) -> None:
    payload = b"REDIS0010" + MARK[:39] + b"x" + MARK[:5]
    link = ChannelLink(PLAIN, 17)
    data = b"+OK\r\n\n\n" + SNAPSHOT + b"\n$EOF:" + MARK + b"\r\n" + payload + MARK + b"more"
    events, sent = run(link, data, step)
    assert events == [FullSync(ID, 5), SnapshotBegin(-1), SnapshotData(payload), SnapshotEnd()]
    assert sent == encode(*REPLCONF) + encode(b"PSYNC", b"?", b"-1")
    assert link.phase == "done"


@pytest.mark.parametrize("step", [1, 10_000])
def test_a_password_an_address_and_a_size(step: int) -> None:
    link = ChannelLink(PLAIN._replace(user=b"me", password=b"secret", ip=b"::1"), 17)
    events, sent = run(link, b"+OK\r\n+OK\r\n" + SNAPSHOT + b"$3\r\nabc", step)
    assert events == [FullSync(ID, 5), SnapshotBegin(3), SnapshotData(b"abc"), SnapshotEnd()]
    assert sent == (encode(b"AUTH", b"me", b"secret") + encode(*REPLCONF, b"ip-address", b"::1")
                    + encode(b"PSYNC", b"?", b"-1"))  # fmt: skip


@pytest.mark.parametrize(("password", "data", "reason"), [
    (b"secret", b"-WRONGPASS no\r\n", "Unable to AUTH"),
    (b"", b"-ERR Unrecognized RDB client id: 17\r\n", "Master replied error to replconf"),
    (b"secret", b"+OK\r\n-ERR x\r\n", "Master replied error to replconf"),
    (b"", b"+OK\r\n+CONTINUE\r\n", "unexpected psync reply"),
    (b"", b"+OK\r\n+FULLRESYNC 1 2\r\n", "wrong .FULLRESYNC syntax"),
    (b"", b"+OK\r\n" + SNAPSHOT + b"-ERR no memory\r\n", "MASTER aborted replication with an error"),
])  # fmt: skip
def test_errors_end_the_synchronisation(password: bytes, data: bytes, reason: str) -> None:
    with pytest.raises(LinkError, match=reason):
        run(ChannelLink(PLAIN._replace(password=password), 17), data, 1)


@pytest.mark.parametrize("step", [1, 10_000])
def test_the_first_link(step: int) -> None:
    greeting = b"+PONG\r\n+OK\r\n+OK\r\n"
    link = MasterLink(PLAIN, Position(ID, 10))
    events, sent = run(link, greeting + b"+RDBCHANNELSYNC 17\r\n*1\r\n$4\r\nPING\r\n", step)
    assert events[-2:] == [ChannelOffered(17), StreamData(b"*1\r\n$4\r\nPING\r\n")]
    assert b"rdb-channel-repl" in sent
    link = MasterLink(PLAIN, None)
    with pytest.raises(LinkError, match="RDBCHANNELSYNC syntax"):
        run(link, greeting + b"+RDBCHANNELSYNC x\r\n", step)
    # Without the setting the capability is not declared, and the answer makes no sense.
    link = MasterLink(PLAIN._replace(rdb_channel=False), None)
    events, sent = run(link, greeting + b"+RDBCHANNELSYNC 17\r\n", step)
    assert b"rdb-channel-repl" not in sent
    assert events[-1] == FullSync("", -1)  # SYNC


def test_the_buffer_returns_what_it_was_fed() -> None:
    chance = random.Random(3)
    buffer, model = SyncBuffer(), b""
    for _ in range(150):
        if chance.random() < 0.5:
            data = chance.randbytes(chance.choice((0, 1, 100, 70_000, BLOCK, 2 * BLOCK + 5)))
            buffer.feed(data)
            model += data
        else:
            most = chance.choice((1, 16384, BLOCK, 3 * BLOCK))
            data = buffer.take_bytes(most)
            assert data == model[: len(data)]
            assert len(data) <= most
            assert bool(data) == bool(model)
            model = model[len(data) :]
        buffer.check()
        assert buffer.used == len(model) <= buffer.size <= buffer.peak
    peak = buffer.peak
    buffer.clear()
    buffer.check()
    assert (buffer.size, buffer.used, buffer.peak, buffer.take_bytes(5)) == (0, 0, peak, b"")
