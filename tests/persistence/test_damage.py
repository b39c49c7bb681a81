"""Damaged logs: after damage to any byte, the log is rejected with file and offset, or the loaded data is valid."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rillet.errors import LogCorrupt, NewerFormat
from rillet.persistence.aof.loader import begins_a_command
from rillet.runtime.settings.settings import Settings
from tests.persistence.state import WORK, Opened
from tests.variants import by_speed, long

NAME = "appendonly.aof.1.incr.aof"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("log")
    with Opened(folder) as opened:
        for line in WORK:
            opened(*line.split())
    return (folder / NAME).read_bytes()


def _load(folder: Path, data: bytes) -> tuple[str, int]:
    """Return the result of opening a log of these bytes and its offset: "loads", "torn" or "corrupt"."""
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_bytes(data)
    (folder / "appendonly.aof.manifest").write_text(f"file {NAME} seq 1 type i\n")
    refusal: LogCorrupt | NewerFormat | None = None
    try:
        with Opened(folder) as opened:
            opened.engine.check()
            opened.state()
            left, torn = opened.log.size, opened.replayed.torn
    except (LogCorrupt, NewerFormat) as error:
        refusal = error
    if refusal is not None:
        assert (folder / NAME).read_bytes() == data  # nothing was cut off
        if isinstance(refusal, NewerFormat):
            assert str(folder / NAME) in str(refusal)
            assert "this version has no such command" in str(refusal)
            return "corrupt", -1
        assert str(refusal).startswith(f"{folder / NAME}: offset {refusal.offset}: ")
        assert 0 <= refusal.offset <= len(data)
        assert refusal.path == str(folder / NAME)
        return "corrupt", refusal.offset
    assert (left < len(data)) == bool(torn)
    return ("torn", left) if torn else ("loads", left)


def _commands(data: bytes) -> list[int]:
    """Return the start of each command."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        words = int(data[at + 1 : data.index(b"\r\n", at)])
        at = data.index(b"\r\n", at) + 2
        for _ in range(words):
            end = data.index(b"\r\n", at)
            at = end + 2 + int(data[at + 1 : end]) + 2
    return starts


def test_a_damaged_byte_is_detected_or_harmless(whole: bytes, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    ends = {"corrupt": 0, "torn": 0, "loads": 0}
    rounds = by_speed(150, 60, 400)
    for _ in range(rounds):
        at = chosen.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[at] ^= chosen.choice((0x01, 0x80, 0xFF, 0x20, 0x0F))
        ended, offset = _load(tmp_path, bytes(damaged))
        ends[ended] += 1
        # Commands before the damaged one are never reported and never cut off.
        begins = max(start for start in _commands(whole) if start <= at)
        assert offset == -1 or offset >= _transaction_of(whole, begins), (seed, at, ended, offset)
    assert ends["corrupt"] > rounds // 4, (seed, ends)
    assert ends["loads"] > 0, (seed, ends)


def _transaction_of(data: bytes, start: int) -> int:
    """Return the start of the transaction that contains a command, or of the command itself."""
    multi = data.rfind(b"*1\r\n$5\r\nMULTI", 0, start)
    return multi if multi >= 0 and data.find(b"*1\r\n$4\r\nEXEC", multi) >= start else start


def test_damage_to_a_command_header_is_detected(whole: bytes, tmp_path: Path) -> None:
    """Each byte of the count and the lengths of a command in the middle is changed to several values."""
    start = _commands(whole)[len(_commands(whole)) // 2]
    for at in [start, start + 1, start + 2, start + 4, start + 5, start + 6]:
        for other in b"*$0959\r\nX\x00-":
            damaged = bytearray(whole)
            if damaged[at] == other:
                continue
            damaged[at] = other
            ended, offset = _load(tmp_path, bytes(damaged))
            assert ended == "corrupt", (at - start, other, ended, offset)


@pytest.mark.parametrize(
    "tail", [b"\x00" * 4096, b"PING\r\n", b"\n", b"garbage", b"*x\r\n", b"$4\r\nPING\r\n", b"REDIS0010", b"*1\r\nx"]
)
def test_invalid_bytes_at_the_end_are_rejected(whole: bytes, tmp_path: Path, tail: bytes) -> None:
    assert _load(tmp_path, whole + tail) == ("corrupt", len(whole))


def test_zeros_in_the_middle_are_rejected(whole: bytes, tmp_path: Path) -> None:
    start = _commands(whole)[10]
    assert _load(tmp_path, whole[:start] + bytes(512) + whole[start + 512 :]) == ("corrupt", start)


def test_missing_bytes_are_detected(whole: bytes, tmp_path: Path) -> None:
    starts = _commands(whole)
    for first in (3, 8, 20):
        ended, _ = _load(tmp_path, whole[: starts[first] + 9] + whole[starts[first + 1] + 5 :])
        assert ended == "corrupt"


def test_a_rejected_command_is_named_in_the_error(tmp_path: Path) -> None:
    good = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nx\r\n"
    tmp_path.joinpath("log").mkdir()
    folder = tmp_path / "log"
    (folder / NAME).write_bytes(good + b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n")
    (folder / "appendonly.aof.manifest").write_text(f"file {NAME} seq 1 type i\n")
    with pytest.raises(LogCorrupt, match=r"offset 27: 'INCR a' was refused: ERR value is not an integer") as caught:
        Opened(folder)
    assert caught.value.offset == len(good)
    assert caught.value.reason.startswith("'INCR a'")


def test_a_torn_write_leaves_a_prefix_of_a_command() -> None:
    command = b"*3\r\n$3\r\nSET\r\n$11\r\nhello\r\nabcd\r\n$0\r\n\r\n"
    assert all(begins_a_command(command[:end]) for end in range(1, len(command)))
    assert begins_a_command(b"#TS:17")
    for other in (b"\x00", b"*\x003\r\n", b"*3\x00\n", b"*x", b"*3\r\nx", b"*3\r\n$\x00", b"*3\r\n$3\r\nSETx",
                  b"*3\r\n$3\r\nSET\rx", b"*3\r\n$3\r\nSET\r\n*1", b"*3\rX", b"*3\n", command, b"*12345678901",
                  b"#TS:17\r\n"):  # fmt: skip
        assert not begins_a_command(other), other


def test_a_command_without_a_name_is_rejected_with_its_offset(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / NAME).write_bytes(b"*1\r\n$0\r\n\r\n")
    (folder / "appendonly.aof.manifest").write_text(f"file {NAME} seq 1 type i\n")
    with pytest.raises((LogCorrupt, NewerFormat), match="offset 0"):
        Opened(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "size"), [("1mb", 2 << 20), *long(("512mb", 513 << 20))])
def test_a_log_may_contain_values_above_the_client_limits(tmp_path: Path, limit: str, size: int) -> None:
    with Opened(tmp_path / "log") as opened:
        big = b"x" * size
        opened("SET", "big", big)
    with Opened(tmp_path / "log", settings=Settings(compat="7.0", proto_max_bulk_len=limit)) as opened:
        assert opened("STRLEN", "big") == len(big)
