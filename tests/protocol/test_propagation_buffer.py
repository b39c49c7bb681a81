"""The propagation buffer: commands, SELECTs and timestamps in the form of the log."""

from __future__ import annotations

import random

from rillet.protocol.command_parser import CommandParser, pack_command
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.protocol.reply_writer import INITIAL_CAPACITY, KEEP_CAPACITY

SELECT_3 = pack_command([b"SELECT", b"3"])


def test_commands_equal_pack_command() -> None:
    chance = random.Random(1)
    feed = PropagationBuffer()
    told = b""
    for _ in range(200):
        argv = [chance.randbytes(chance.choice([0, 1, 9, 10, 99, 100, 5000])) for _ in range(chance.randrange(1, 14))]
        feed.command(argv)
        told += pack_command(argv)
        assert feed.used == len(feed) == len(told)
        if chance.random() < 0.1:
            assert feed.take_bytes() == told
            told = b""
    assert feed.take_bytes() == told
    assert feed.take_bytes() == b""
    assert feed.used == 0


def test_a_select_is_written_when_the_database_changes() -> None:
    feed = PropagationBuffer()
    for db in (3, 3, 3, 11, 3):
        feed.select(db)
        feed.command([b"DEL", b"a"])
    deletion = pack_command([b"DEL", b"a"])
    in_11 = pack_command([b"SELECT", b"11"]) + deletion
    assert feed.take_bytes() == SELECT_3 + 3 * deletion + in_11 + SELECT_3 + deletion
    feed.select(3)
    assert feed.take_bytes() == b""
    assert feed.db == 3
    feed.forget_db()
    assert feed.db == -1
    feed.select(3)
    assert feed.take_bytes() == SELECT_3


def test_a_timestamp_is_written_once_per_second_and_never_decreases() -> None:
    feed = PropagationBuffer(True)
    for second in (7, 7, 6, 8):
        feed.note_time(second)
    assert feed.take_bytes() == b"#TS:7\r\n#TS:8\r\n"
    feed.begin(3, 8_999)
    feed.begin(3, 9_000)
    assert feed.take_bytes() == SELECT_3 + b"#TS:9\r\n"
    feed.forget_db()  # a new file begins with the time, too
    feed.begin(3, 9_500)
    assert feed.take_bytes() == b"#TS:9\r\n" + SELECT_3
    feed.timestamps = False
    feed.begin(3, 10_000)
    assert feed.take_bytes() == b""
    assert feed.second == 9


def test_headers_numbers_and_ids_form_a_command() -> None:
    feed = PropagationBuffer()
    feed.header(4)
    feed.raw(b"$4\r\nXADD\r\n")
    feed.number(0)
    feed.number(9_223_372_036_854_775_807)
    feed.stream_id(18_446_744_073_709_551_615, 10)
    parser = CommandParser()
    parser.feed(feed.take_bytes())
    assert parser.next() == [b"XADD", b"0", b"9223372036854775807", b"18446744073709551615-10"]


def test_a_large_buffer_is_released_by_take() -> None:
    feed = PropagationBuffer()
    feed.raw(b"x" * KEEP_CAPACITY)
    feed.raw(b"y" * INITIAL_CAPACITY)
    assert feed.take_bytes() == b"x" * KEEP_CAPACITY + b"y" * INITIAL_CAPACITY
    feed.command([b"PING"])
    assert feed.take_bytes() == b"*1\r\n$4\r\nPING\r\n"
