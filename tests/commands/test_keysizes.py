"""INFO KEYSIZES and DEBUG HTSTATS-KEY."""

from __future__ import annotations

import random

import pytest

from rillet.commands.server.keysizes import bin_label, size_bin
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local


def local(compat: str) -> Local:
    """Return an engine that allows DEBUG."""
    return Local(Engine(Settings(compat=compat, enable_debug_command="yes")))


def section(end: Local) -> list[str]:
    """Return the lines of INFO keysizes."""
    text = bytes(end.run([b"INFO", b"keysizes"])).decode()
    return [line for line in text.split("\r\n")[1:] if line]


@pytest.mark.parametrize(("size", "label"), [
    (0, "0"), (1, "1"), (2, "2"), (3, "2"), (4, "4"), (1023, "512"), (1024, "1K"), (2**20 - 1, "512K"), (2**20, "1M"),
    (2**47, "128T"),
])  # fmt: skip
def test_a_bin_is_named_by_its_least_size(size: int, label: str) -> None:
    assert bin_label(size_bin(size)) == label


def test_the_section_counts_the_keys_of_each_type_and_database() -> None:
    end = local("8.6")
    assert section(end) == ["# Keysizes"]
    for command in ("SET a xyz", "SET b 12", "SET empty", "RPUSH l 1 2 3 4 5", "SADD s 1", "HSET h f v", "ZADD z 1 a",
                    "XADD x * f v", "SELECT 2", "SADD s 1 2 3"):  # fmt: skip
        words = command.encode().split()
        end.run([*words, b""] if command == "SET empty" else words)
    assert section(end) == [
        "# Keysizes", "db0_distrib_strings_sizes:0=1,2=2", "db0_distrib_lists_items:4=1", "db0_distrib_sets_items:1=1",
        "db0_distrib_zsets_items:1=1", "db0_distrib_hashes_items:1=1", "db2_distrib_sets_items:2=1",
    ]  # fmt: skip
    assert bytes(end.run([b"DEBUG", b"KEYSIZES-HIST-ASSERT", b"1"])) == b"+OK\r\n"


def test_older_versions_have_no_such_section() -> None:
    assert section(local("7.0")) == []


def htstats(end: Local, *words: bytes) -> str:
    return bytes(end.run([b"DEBUG", b"HTSTATS-KEY", *words])).decode()


@pytest.mark.parametrize("compat", ["7.0", "8.6"])
def test_htstats_key_describes_the_table_of_a_value(compat: str) -> None:
    end = local(compat)
    end.run([b"SADD", b"k", *(b"m%d" % number for number in random.sample(range(10**6), 700))])
    while end.engine.databases[0].peek(b"k").table.rehash(100):
        pass
    text = htstats(end, b"k")
    assert "Hash table 0 stats (main hash table):\n table size: 1024\n number of elements: 700\n" in text
    assert ("max chain length" in text) is (compat == "7.0")
    if compat == "8.6":
        assert "Chain length distribution:" in htstats(end, b"k", b"full")
    else:
        assert htstats(end, b"k", b"full").startswith("-ERR")
    end.run([b"SET", b"string", b"v"])
    assert htstats(end, b"none") == "-ERR no such key\r\n"
    assert htstats(end, b"string") == (
        "-ERR The value stored at the specified key is not represented using an hash table\r\n"
    )
