"""Arrays beside the other types: versions, key commands, memory, lazy freeing, defragmentation, files.

tests/differential/arrays.py has the commands themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import Lost, write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import Settings
from rillet.structs.array.regex import compile_regex
from rillet.structs.array.regex_parser import Backreference, RegexError
from tests.differential.wire import Local
from tests.keyspace.test_defrag import StepClock

pytestmark = pytest.mark.both


@pytest.fixture
def local() -> Local:
    return Local(Engine(Settings(enable_debug_command="yes")))


@pytest.mark.parametrize("compat", ["7.0", "8.6", "valkey"])
def test_older_servers_do_not_know_the_commands(compat: str) -> None:
    end = Local(Engine(Settings(compat=compat)))
    assert end("ARSET", "k", 0, "x").startswith("ERR unknown command 'ARSET'")
    assert end("COMMAND", "INFO", "arget") == [b"-1"]


def test_keys_of_the_type(local: Local) -> None:
    local("ARSET", "a", 0, *range(100))
    local("SET", "s", "x")
    assert (local("TYPE", "a"), local("OBJECT", "ENCODING", "a")) == (b"array", b"sliced-array")
    assert local("SCAN", 0, "TYPE", "array") == [b"0", [b"a"]]
    assert b"db0_distrib_arrays_items:64=1" in local("INFO", "keysizes")
    assert local("COPY", "a", "b") == 1
    local("ARSET", "b", 7, "changed")
    assert (local("ARGET", "a", 7), local("ARGET", "b", 7)) == (b"7", b"changed")
    assert local("ARSET", "s", 0, "x").startswith("WRONGTYPE")
    assert local("GET", "a").startswith("WRONGTYPE")
    assert local("RENAME", "b", "c") == b"OK"
    local.engine.check()


def test_memory_follows_the_values(local: Local) -> None:
    local("ARSET", "a", 0, *["x" * 100] * 1000)
    full = local("MEMORY", "USAGE", "a")
    assert 100_000 < full < 250_000
    local("ARDELRANGE", "a", 0, 990)
    assert local("MEMORY", "USAGE", "a") < full / 3
    local.engine.check()


def test_a_large_array_is_freed_in_steps(local: Local) -> None:
    local.engine.lazyfree.on_pending = lambda: None
    local("ARSET", "a", 0, *["text of some length"] * 2000)
    local("ARSET", "a", 10**9, "far")
    assert local("UNLINK", "a") == 1
    assert local.engine.lazyfree.pending == 1
    while local.engine.lazyfree.step():
        local.engine.lazyfree.check()
    assert (local.engine.lazyfree.pending, local.engine.lazyfree.freed) == (0, 1)


def test_active_defragmentation_closes_the_gaps_of_strings() -> None:
    end = Local(Engine(Settings(activedefrag="yes", active_defrag_ignore_bytes="1"), StepClock()))
    for start in range(0, 8000, 1000):
        end("ARSET", "a", start, *[f"number {at} of a text" for at in range(start, start + 1000)])
    cells = end.session.db.peek(b"a").cells
    for start in range(0, 8000, 100):
        end("ARDELRANGE", "a", start, start + 89)
    digest = end("DEBUG", "DIGEST-VALUE", "a") if end.engine.settings.enable_debug_command == "yes" else None
    assert len(cells.spare) == 7200
    for _ in range(10_000):
        end.engine.defrag.run()
        if not cells.spare:
            break
    assert (len(cells.strings), len(cells.spare)) == (800, 0)
    cells.check()
    assert digest is None or end("DEBUG", "DIGEST-VALUE", "a") == digest
    assert end("ARGET", "a", 7995) == b"number 7995 of a text"
    end.engine.check()


def test_files_of_older_versions_lose_arrays(local: Local, tmp_path: Path) -> None:
    local("ARSET", "a", 5, "x", "2.5", "7")
    local("ARSEEK", "a", 0)
    local("ARINSERT", "a", "first")
    local("SET", "s", "x")
    write_rdb(tmp_path / "new.rdb", local.engine)
    assert (tmp_path / "new.rdb").read_bytes()[:9] == b"REDIS0014"
    lost: list[Lost] = []
    write_rdb(tmp_path / "old.rdb", local.engine, version=11, lost=lost)
    assert lost == [Lost(0, b"a", "an array")]
    for name, keys in (("new", 2), ("old", 1)):
        other = Local(Engine(Settings(enable_debug_command="yes")))
        load_rdb(tmp_path / f"{name}.rdb", other.engine)
        assert other("DBSIZE") == keys
        if name == "new":
            assert other("DEBUG", "DIGEST") == local("DEBUG", "DIGEST")
            assert other("ARNEXT", "a") == 1


def test_the_limits_depend_on_each_other() -> None:
    for name, value in (("slice_size", 1000), ("slice_size", 128), ("sparse_kmax", 4), ("sparse_kmin", 10)):
        wrong: dict[str, Any] = {f"array_{name}": value}
        with pytest.raises(SettingError, match="array_"):
            Settings(**wrong)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (b"^a(b|c)*d$", b"abccbd", True), (b"^a(b|c)*d$", b"abxd", False), (b"[^a-cb-e]", b"d", True),
        (b"(^|x*)a", b"ba", False), (b"fo+$", b"foo\0x", True), (b"foo$", b"foo\0x", False), (b"\\b-", b"-", True),
        (b"(?i:A)b", b"ab", True), (b"(?i:A)b", b"aB", False), (b"\\x61{2}", b"baa", True), (b"\\Q.*\\E", b"a.*", True),
        (b"a{,2}$", b"", True), (b"\\<b", b"a b", True), (b"(a?){255}", b"", True), (b"a{2}{2}", b"aaa", False),
    ],
)  # fmt: skip
def test_regular_expressions(pattern: bytes, text: bytes, found: bool) -> None:
    assert compile_regex(pattern).matches(text) is found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (b"(", r"Missing '\)'"), (b"[a", "Missing ']'"), (b"a{1", "Missing '}'"), (b"a{2,1}", "Invalid contents"),
        (b"a**", "repetition operators"), (b"[b-a]", "character range"), (b"\\", "Trailing backslash"),
        (b"[[:foo:]]", "character class name"), (b"[[.a.]]", "collating element"), (b"(?x)", "Invalid regexp"),
        (b"a{256}", "larger than 255"), (b"\\1", "back reference"), (b"((a{255}){255}){255}", "Out of memory"),
        (b"\\x{1g}", "Missing '}'"),
    ],
)  # fmt: skip
def test_invalid_regular_expressions(pattern: bytes, message: str) -> None:
    with pytest.raises(RegexError, match=message):
        compile_regex(pattern)
    with pytest.raises(Backreference):
        compile_regex(b"(a)\\1")


def test_a_thousand_nested_groups(local: Local) -> None:
    assert compile_regex(b"(" * 1000 + b"a" + b")*" * 999 + b")").matches(b"aa")
