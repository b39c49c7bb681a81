"""The backlog, and the two readers of the propagation buffer."""

from __future__ import annotations

import random

import pytest

from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.replication.backlog import BLOCK, Backlog

SELECT_0 = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
SELECT_1 = b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n"


def test_a_backlog_holds_the_last_bytes_of_its_stream() -> None:
    chance = random.Random(1)
    backlog, whole = Backlog(50_000, 7), bytearray(7)
    for _ in range(300):
        data = chance.randbytes(chance.choice((1, 30, 900, BLOCK, 3 * BLOCK)))
        whole += data
        backlog.append(data)
        backlog.trim(backlog.end, 10_000)
        backlog.check()
        assert backlog.end == len(whole)
        assert min(50_000, backlog.end - 7) <= len(backlog)
        assert len(backlog) < 50_000 + 3 * BLOCK
        position = chance.randint(backlog.first, backlog.end)
        read, most = b"", chance.choice((1, 500, 1 << 20))
        while position + len(read) < backlog.end:
            piece = backlog.read(position + len(read), most)
            assert piece
            read += piece
        assert read == whole[position:]
    assert not backlog.holds(backlog.first - 1)
    assert not backlog.holds(backlog.end + 1)
    assert backlog.holds(backlog.end)


def test_a_slow_replica_keeps_the_bytes_that_it_needs() -> None:
    backlog = Backlog(100, 0)
    for _ in range(50):
        backlog.append(b"x" * BLOCK)
        backlog.trim(BLOCK + 1)
    assert backlog.holds(BLOCK + 1)
    assert backlog.first == BLOCK
    backlog.trim(backlog.end)
    assert len(backlog) == BLOCK


@pytest.mark.parametrize("taken_first", [False, True])
def test_the_second_reader_gets_all_commands_without_times(taken_first: bool) -> None:
    feed = PropagationBuffer(timestamps=True)
    feed.begin(0, 1_000_000)
    feed.command([b"EARLIER"])
    feed.share(True)
    feed.begin(0, 2_000_000)
    feed.command([b"A", b"1"])
    feed.begin(1, 3_000_000)
    feed.command([b"B"])
    log = feed.take_bytes() if taken_first else b""
    feed.begin(1, 4_000_000)
    feed.command([b"C"])
    assert feed.pull() == SELECT_0 + b"*2\r\n$1\r\nA\r\n$1\r\n1\r\n" + SELECT_1 + b"*1\r\n$1\r\nB\r\n*1\r\n$1\r\nC\r\n"
    assert feed.pull() == b""
    log += feed.take_bytes()
    assert log.count(b"#TS:") == 4
    assert log.endswith(b"#TS:4000\r\n*1\r\n$1\r\nC\r\n")
    assert feed.pull() == b""


def test_a_command_may_be_for_one_reader_alone() -> None:
    feed = PropagationBuffer()
    feed.share(True)
    feed.begin(0, 0)
    feed.command([b"A"])
    feed.for_replicas(0, [b"P"])
    feed.for_log(0, [b"L"], 0)
    feed.command([b"B"])
    assert feed.pull() == SELECT_0 + b"*1\r\n$1\r\nA\r\n*1\r\n$1\r\nP\r\n*1\r\n$1\r\nB\r\n"
    assert feed.take_bytes() == SELECT_0 + b"*1\r\n$1\r\nA\r\n*1\r\n$1\r\nL\r\n*1\r\n$1\r\nB\r\n"
    feed.share(False)
    feed.for_replicas(0, [b"P"])
    feed.for_log(0, [b"L"], 0)
    assert (feed.pull(), feed.take_bytes()) == (b"", SELECT_0 + b"*1\r\n$1\r\nL\r\n")
