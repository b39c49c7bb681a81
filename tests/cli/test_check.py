"""`rillet check`: damage is reported with file, offset and cause; nothing is changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import rillet
from rillet.cli import main
from rillet.errors import StoreBusy, StoreError
from rillet.persistence.checking import check, repair
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from tests.judge import running_redis
from tests.persistence.state import STREAMS, WORK
from tests.variants import by_speed
from tests.waiting import until

STEP = by_speed(19, 29, 2)  # between two damaged bytes


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def filled(path: Path, checksums: bool) -> Path:
    """Fill a store with streams, groups, strings, lists and sets, and close it."""
    with rillet.open(path, appendfsync="no", compat="7.0", aof_checksums=checksums) as opened:
        for line in [*WORK, *STREAMS.format(long="x" * 100).split("\n"), "RPUSH list a b c", "SADD set 1 2 x"]:
            if line.strip():
                opened.execute(*line.split())
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose log is as redis-server would have written it."""
    return filled(tmp_path / "events.rillet", False)


def last_of(store: Path) -> Path:
    return sorted(store.glob("appendonlydir/*.incr.aof"))[-1]


def test_a_sound_store_passes_the_check(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(store)
    assert main(["check", str(store)]) == 0
    said = capsys.readouterr().out
    assert said.endswith("sound\n")
    assert "every structure checked" in said
    assert "entries in streams" in said
    assert main(["check", "--quiet", str(store)]) == 0
    assert capsys.readouterr().out == ""
    assert files_of(store) == before
    for inner in (store / "appendonlydir", next(store.glob("appendonlydir/*.manifest")), last_of(store)):
        assert main(["check", "--quiet", str(inner)]) == 0


def test_a_torn_end_is_reported_and_repaired_on_request(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = last_of(store)
    whole = log.read_bytes()
    log.write_bytes(whole + b"*3\r\n$3\r\nSET\r\n$5\r\nho")
    before = files_of(store)
    assert main(["check", str(store)]) == 1
    said = capsys.readouterr().out
    assert f"DAMAGED {log}: offset {len(whole)}: a torn end: 19 bytes of an unfinished command; --repair" in said
    assert files_of(store) == before
    assert main(["check", "--repair", str(store)]) == 0
    kept = log.with_name(f"{log.name}.torn-{len(whole)}")
    assert f"copy of the original: {kept}" in capsys.readouterr().out
    assert kept.read_bytes() == before[str(log.relative_to(store))]
    assert log.read_bytes() == whole
    assert main(["check", "--quiet", str(store)]) == 0


def test_every_length_of_a_torn_log_is_sound_or_torn(tmp_path: Path) -> None:
    log = tmp_path / "appendonly.aof"
    whole = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
    transaction = b"*1\r\n$5\r\nMULTI\r\n" + whole + b"*1\r\n$4\r\nEXEC\r\n"
    commands = whole * 2 + transaction + b"#TS:1700000000\r\n" + whole
    ends = {0, len(whole), 2 * len(whole), len(commands) - len(whole), len(commands),
            2 * len(whole) + len(transaction)}  # fmt: skip
    for size in range(1, len(commands) + 1, by_speed(5, 9, 1)):
        log.write_bytes(commands[:size])
        report = check(log)
        if size in ends:
            assert report.sound, size
        else:
            (damage,) = report.damages
            assert damage.torn, size
            assert damage.offset == max(end for end in ends if end < size), size
            repair(log, damage)
            assert check(log).sound
            assert log.stat().st_size == damage.offset


def test_damage_in_a_log_is_reported_with_its_offset_and_not_repaired(store: Path) -> None:
    log = last_of(store)
    whole = log.read_bytes()
    # *<n> CR LF $<n> CR LF <word> CR LF ...: every byte of the frame of the first commands; a word has no checksum.
    found = re.finditer(rb"[*$]\d+\r\n|(?<=[^\d\n])\r\n", whole[:400])
    frame = [at for one in found for at in range(*one.span())]
    assert len(frame) > 100
    for at in frame[:: by_speed(9, 13, 1)]:
        log.write_bytes(whole[:at] + b"!" + whole[at + 1 :])
        report = check(store)
        assert not report.sound, at
        assert not any(damage.torn for damage in report.damages), at
        assert report.damages[0].path == log, report.damages
        assert at - 100 < report.damages[0].offset <= at, report.damages
    before = files_of(store)
    assert main(["check", "--repair", str(store)]) == 1
    assert files_of(store) == before


def test_with_checksums_no_byte_of_a_log_can_change(tmp_path: Path) -> None:
    log = last_of(filled(tmp_path / "events.rillet", True))
    whole = log.read_bytes()
    assert check(tmp_path / "events.rillet").sound
    assert whole.count(b"#RILLET:") > 50
    # The end is an empty batch, which vouches for the one before it: damage in it is as if it had been torn off.
    end = whole.rindex(b"#RILLET:")
    for at in [*range(0, 300, STEP), *range(300, len(whole), 20 * STEP), *range(len(whole) - 60, len(whole), STEP)]:
        log.write_bytes(whole[:at] + bytes((whole[at] ^ 0x01,)) + whole[at + 1 :])
        report = check(tmp_path / "events.rillet")
        assert not report.sound, at
        assert report.damages[0].path == log, at
        assert report.damages[0].offset <= at, (at, report.damages)
        assert report.damages[0].torn == (at >= end), (at, report.damages)


def test_a_file_that_is_missing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last_of(store).unlink()
    assert main(["check", str(store)]) == 1
    assert "the file appendonly.aof.1.incr.aof is missing" in capsys.readouterr().out


def test_other_files_beside_a_log_are_named(store: Path) -> None:
    (store / "appendonlydir" / "temp-rewrite.rdb").write_bytes(b"half")
    (store / "appendonlydir" / "notes.txt").write_bytes(b"mine")
    report = check(store)
    assert report.sound
    assert ([one.partition(": ")[2] for one in report.remarks] == [
        "not part of the log", "left by an interrupted rewrite; the next opening removes it"
    ])  # fmt: skip


@pytest.mark.parametrize("name", ["dump.rdb", "base.rdb"])
def test_every_byte_of_an_rdb_file_counts(tmp_path: Path, name: str) -> None:
    engine = Engine()
    session = engine.session()
    for line in ("XADD s 1-1 a 1", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", "SET k v", "RPUSH l 1 x",
                 "SADD set 1 2", "PEXPIREAT k 99999999999999"):  # fmt: skip
        engine.execute(session, line.encode().split())
    path = tmp_path / name
    write_rdb(path, engine)
    whole = path.read_bytes()
    assert check(path).sound
    for at in range(0, len(whole), STEP):
        for flip in (0x01, 0x80):
            path.write_bytes(whole[:at] + bytes((whole[at] ^ flip,)) + whole[at + 1 :])
            assert not check(path).sound, at
    for size in range(1, len(whole), STEP):
        path.write_bytes(whole[:size])
        assert not check(path).sound, size
    path.write_bytes(whole + b"x")
    (damage,) = check(path).damages
    assert damage.offset == len(whole)
    assert "after the end" in damage.what


def test_a_store_that_is_open_is_not_checked(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rillet.open(store), pytest.raises(StoreBusy, match=r"is open in process \d+: close it there"):
        check(store)
    with rillet.open(store):
        assert main(["check", str(store)]) == 2
    assert "is open in process" in capsys.readouterr().err


def test_a_part_of_a_store_that_is_open_is_not_checked_either(store: Path) -> None:
    with rillet.open(store) as opened:
        for part in (store / "appendonlydir", next(store.glob("appendonlydir/*.manifest")), last_of(store)):
            with pytest.raises(StoreBusy, match=rf"{re.escape(str(store))} is open in process \d+"):
                check(part)
        opened.save()
        assert check(store / "dump.rdb").sound


def test_a_damaged_marker_and_a_newer_one(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = store / "rillet.json"
    for damaged, where in ((b"", 0), (b'{"format": 1', 12), (b'{"format": "1"}', 0), (b'{"form\xfft": 1}', 6)):
        marker.write_bytes(damaged)
        assert main(["check", str(store)]) == 1
        assert f'DAMAGED {marker}: offset {where}: {{"format": 1, ...}} expected' in capsys.readouterr().out
    marker.write_text('{"format": 2, "written_by": "9.9"}')
    assert main(["check", str(store)]) == 1
    assert "has format 2, written by rillet 9.9" in capsys.readouterr().out


def test_an_empty_file_is_not_an_rdb_file(tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").write_bytes(b"")
    for path in (tmp_path, tmp_path / "dump.rdb"):
        (damage,) = check(path).damages
        assert damage.path == tmp_path / "dump.rdb"
        assert damage.offset == 0


def test_a_command_that_is_not_known_is_placed_once(store: Path) -> None:
    log = last_of(store)
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b"XADD", b"XYZZ", 1))
    (damage,) = check(store).damages
    at = whole.rindex(b"*", 0, whole.index(b"XADD"))
    assert damage.path == log
    assert str(damage).startswith(f"{log}: offset {at}: Unknown command 'XYZZ'")


def test_paths_that_cannot_be_checked_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        check(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="neither a log nor an RDB file"):
        check(tmp_path)
    assert main(["check", str(tmp_path)]) == 2
    assert "neither" in capsys.readouterr().err


def test_the_files_of_a_real_server(tmp_path: Path) -> None:
    with running_redis("--appendonly", "yes") as server:
        client = server.client()
        for line in ("XADD s 1-1 a 1", "RPUSH l x", "SET k v", "SAVE", "BGREWRITEAOF"):
            client.execute_command(*line.split())
        until(lambda: b"aof_rewrite_in_progress:0" in client.execute_command("INFO", "persistence"))
        client.execute_command("XADD", "s", "2-1", "a", "1")
        client.close()
        folder = tmp_path / "copy"
        shutil.copytree(server.folder, folder, ignore=shutil.ignore_patterns("*.sock"))
    report = check(folder)
    assert report.sound, report
    assert sum("every structure checked" in line for line in report.read) == 2, report
