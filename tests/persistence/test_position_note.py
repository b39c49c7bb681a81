"""The position note at the end of a log: when it counts, and that Redis's tools accept it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rillet.persistence.aof.frames import frame
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.position import find, note
from rillet.persistence.disk import REAL
from rillet.protocol.command_parser import pack_command
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.engine import Engine

ID = b"0123456789abcdef" * 2 + b"01234567"
FACTS = {b"repl-id": ID, b"repl-offset": b"1234", b"repl-stream-db": b"3"}
NOTE = note(FACTS)
SELECT, SET = pack_command([b"SELECT", b"0"]), pack_command([b"SET", b"a", b"1"])


def position_of(folder: Path, *files: bytes) -> object:
    paths = []
    for number, data in enumerate(files):
        paths.append(folder / f"{number}.aof")
        paths[-1].write_bytes(data)
    return dict(replay(Engine(), paths).position)


@pytest.mark.parametrize("before", [b"", SELECT + SET, NOTE + SELECT + SET, b"#TS:1700000000\r\n" + SELECT + SET])
def test_the_last_line_counts(before: bytes, tmp_path: Path) -> None:
    assert position_of(tmp_path, before + NOTE) == FACTS
    assert position_of(tmp_path, SELECT + SET, before + NOTE, b"") == FACTS


@pytest.mark.parametrize("after", [SELECT, SELECT + SET, b"#TS:1700000000\r\n", pack_command([b"MULTI"]), SET[:-1],
                                   NOTE[:-1], NOTE.replace(ID, ID[1:]), NOTE.replace(b":3\r", b":-3\r")])  # fmt: skip
def test_a_note_before_something_else_does_not_count(after: bytes, tmp_path: Path) -> None:
    assert position_of(tmp_path, SELECT + SET + NOTE + after) == {}
    assert position_of(tmp_path, SELECT + SET + NOTE, SELECT + SET) == {}


def test_a_value_that_looks_like_a_note_is_a_value(tmp_path: Path) -> None:
    for text in (NOTE[:-2], b"\r\n" + NOTE[:-2], b"*1\r\n$4\r\nPING\r\n" + NOTE[:-2]):
        data = SELECT + pack_command([b"SET", b"a", text])
        path = tmp_path / "0.aof"
        path.write_bytes(data)
        assert find(REAL, path, len(data)) is not None
        assert position_of(tmp_path, data) == {}
        assert position_of(tmp_path, data + NOTE) == FACTS


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) - 1, (1 << 20) - len(NOTE), (1 << 20) - len(NOTE) + 1, 3 << 20])
def test_a_note_at_the_boundary_of_a_piece(size: int, tmp_path: Path) -> None:
    head = SELECT + pack_command([b"SET", b"a", b""])
    value = b"x" * (size - len(head) - 60)
    data = SELECT + pack_command([b"SET", b"a", value])
    data += pack_command([b"SET", b"b", b"y" * max(size - len(data) - 40, 0)])
    assert position_of(tmp_path, data + NOTE) == FACTS


def test_a_note_in_a_frame(tmp_path: Path) -> None:
    data = frame(b"", offset=0, synced=0, seq=1)
    data += frame(SELECT + SET + NOTE, offset=len(data), synced=0, seq=1)
    assert position_of(tmp_path, data) == FACTS
    assert position_of(tmp_path, data[:-1]) == {}
    assert position_of(tmp_path, data + frame(SET, offset=len(data), synced=0, seq=1)) == {}


def test_the_second_reader_of_a_buffer_gets_no_note() -> None:
    feed = PropagationBuffer()
    feed.share(True)
    feed.select(1)
    feed.annotate(NOTE)
    feed.command([b"SET", b"a", b"1"])
    feed.annotate(NOTE)
    select = pack_command([b"SELECT", b"1"])
    assert feed.take_bytes() == select + NOTE + SET + NOTE
    feed.command([b"SET", b"a", b"1"])
    assert feed.pull() == select + SET + SET
    feed.annotate(NOTE)
    assert feed.pull() == b""
    assert feed.take_bytes() == SET + NOTE


@pytest.mark.skipif(shutil.which("redis-check-aof") is None, reason="redis-check-aof is not installed")
def test_redis_accepts_the_note(tmp_path: Path) -> None:
    path = tmp_path / "a.aof"
    path.write_bytes(NOTE + SELECT + SET + NOTE)
    done = subprocess.run(["redis-check-aof", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "is valid" in done.stdout
