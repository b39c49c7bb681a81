"""A short run of the file fuzzer (fuzz_files.py), and the defects that it found."""

from __future__ import annotations

import pytest

from rillet.errors import LogCorrupt
from rillet.persistence.aof.loader import replay
from rillet.persistence.rdb.reader import load_rdb
from rillet.protocol.command_parser import pack_command
from tests.persistence import fuzz_files, rdb_files
from tests.persistence.damaged_files import sealed_log, sealed_rdb
from tests.persistence.fuzz_files import RDB, Fuzzer, disk_with, new_engine
from tests.variants import by_speed, seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2, 1))
@pytest.mark.parametrize("target", fuzz_files.TARGETS)
def test_readers_reject_or_load_fuzzed_files(target: str, seed: int) -> None:
    sizes = {"rdb": (14, 14, 120), "aof": (12, 12, 90), "check": (8, 8, 30)}
    count = by_speed(*sizes.get(target, (60, 60, 400)))
    fuzzer = Fuzzer(target, seed)
    fuzzer.run(count)
    assert fuzzer.counts["refused"] > count // 10, fuzzer.counts
    assert count - fuzzer.counts["refused"] > count // 20, fuzzer.counts


def test_the_fuzzer_restores_checksums() -> None:
    whole = rdb_files.of_version(10)
    assert sealed_rdb(whole[:-8] + bytes(8)) == whole
    fuzzer = Fuzzer("aof", 1)
    logs = [log for log in map(fuzzer.file, range(by_speed(15, 15, 60))) if log.startswith(b"#RILLET:")]
    loaded = [log for log in logs if fuzz_files.try_aof(log) == "loaded"]
    assert loaded
    for log in loaded:
        assert sealed_log(log) == log


def test_the_fuzzer_detects_an_error_without_a_valid_offset() -> None:
    error = LogCorrupt(str(RDB), 101, "a key expected")
    fuzz_files.refused_well(error, RDB, 101)
    for wrong in (LogCorrupt(str(RDB), 102, "x"), LogCorrupt("another", 1, "x"), ValueError("x")):
        with pytest.raises(AssertionError):
            fuzz_files.refused_well(wrong, RDB, 101)


def test_damage_with_a_valid_checksum_is_reported_with_its_offset() -> None:
    data = sealed_rdb(rdb_files.of_version(10).replace(b"\x10\x09hlistpack", b"\x11\x09hlistpack"))
    with pytest.raises(LogCorrupt, match=f"{RDB}: offset "):
        load_rdb(RDB, new_engine(), disk=disk_with({RDB: data}))


@pytest.mark.parametrize("line", [
    b'bind 127.0.0.1 "a\\nappendonly yes"', b"bind 'a\"b'", b'bind "a\r\rb"', b'bind "\\xff"', b'bind ""',
    b'bind 127.0.0.1 ::1', b"",
])  # fmt: skip
def test_an_invalid_address_is_written_unchanged(line: bytes) -> None:
    assert fuzz_files.try_config(line + b"\n") == "loaded"


def test_a_command_larger_than_memory_is_rejected() -> None:
    good = pack_command([b"SET", b"k", b"v"])
    data = good + pack_command([b"SETRANGE", b"k", b"9223372036854775806", b"x"]) + good
    assert fuzz_files.try_aof(data) == "refused"
    with pytest.raises(LogCorrupt, match=f"{fuzz_files.LOG}: offset {len(good)}: "):
        replay(new_engine(), [fuzz_files.LOG], disk=disk_with({fuzz_files.LOG: data}))
