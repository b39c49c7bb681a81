"""Opening tells in one line what it found: nothing loud after an orderly end, a warning after a crash."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.cli import main
from rillet.errors import LogCorrupt
from tests.forked import ran

# Adds an entry in a store and is killed with it open.
_DIES = """
import os, signal, sys, rillet
store = rillet.open(sys.argv[1])
store.stream("s").add({"a": "1"})
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(one.levelno, one.getMessage()) for one in caplog.records if one.name == "rillet.store"]


def test_after_an_orderly_end_the_line_is_information(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rillet.store")
    with rillet.open(tmp_path / "s") as store:
        store.stream("s").add({"a": "1"})
        assert store.recovery is not None
        assert store.recovery.commands == 0
        assert store.recovery.killed is None
    with rillet.open(tmp_path / "s") as store:
        found = store.recovery
    assert found is not None
    assert found.dropped == 0
    assert found.commands == 2  # SELECT and XADD
    assert [level for level, _ in lines(caplog)] == [logging.INFO] * 2
    assert lines(caplog)[1][1] == f"{tmp_path / 's'}: 2 commands replayed (0.0 MB) in {found.seconds:.2f} s"


def test_after_a_crash_it_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, output, _ = ran(_DIES, tmp_path / "s")
    pid = int(output)
    with rillet.open(tmp_path / "s") as store:
        assert store.recovery is not None
        assert store.recovery.killed == pid
        assert store.execute("XLEN", "s") == 1
    ((level, line),) = lines(caplog)
    assert level == logging.WARNING
    assert f"process {pid} ended without closing it; 2 commands replayed" in line
    assert line.endswith("; the log was intact")


def test_a_torn_end_is_told_with_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rillet.open(tmp_path / "s", aof_checksums=False) as store:
        store.stream("s").add({"a": "1"})
    (log,) = (tmp_path / "s").glob("appendonlydir/*.incr.aof")
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + b"*3\r\n$3\r\nSE")
    with rillet.open(tmp_path / "s", aof_checksums=False) as store:
        assert store.recovery is not None
        assert (store.recovery.dropped, store.recovery.offset) == (10, size)
    ((level, line),) = lines(caplog)
    assert level == logging.WARNING
    assert f"10 bytes of an unfinished command were dropped at offset {size}" in line


def test_without_any_set_up_a_crash_is_one_line_on_stderr(tmp_path: Path) -> None:
    ran(_DIES, tmp_path / "s")
    code = f"import rillet; rillet.open({str(tmp_path / 's')!r}).close()"
    _, output, errors = ran(code)
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert "ended without closing it" in errors
    assert ran(code) == (0, "", "")


def test_who_is_attached_or_in_memory_found_nothing(tmp_path: Path) -> None:
    with rillet.open() as store:
        assert store.recovery is None
    code = f"import rillet; print(rillet.open({str(tmp_path / 's')!r}).recovery)"
    with rillet.open(tmp_path / "s") as store:
        store.execute("SET", "k", "v")
        assert ran(code) == (0, "None\n", "")


def test_an_owner_that_left_no_readable_word_was_not_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rillet.open(tmp_path / "s").close()
    (tmp_path / "s" / "owner.json").write_text(json.dumps({"pid": "x"}))
    with rillet.open(tmp_path / "s") as store:
        assert store.recovery is not None
        assert store.recovery.killed is None
    assert lines(caplog) == []


def test_the_log_of_a_store_has_checksums_unless_told_otherwise(tmp_path: Path) -> None:
    for name, checksums in (("with", True), ("without", False)):
        with rillet.open(tmp_path / name, aof_checksums=checksums) as store:
            store.execute("SET", "k", "v")
        (log,) = (tmp_path / name).glob("appendonlydir/*.incr.aof")
        assert (b"#RILLET:" in log.read_bytes()) == (name == "with")


@pytest.mark.parametrize("how", [{}, {"readonly": True}, {"owner": "process"}], ids=str)
def test_the_error_of_a_damaged_log_names_the_remedy(tmp_path: Path, how: dict[str, Any]) -> None:
    path = tmp_path / "my store"
    with rillet.open(path) as store:
        store.stream("s").add_many({"n": n} for n in range(100))
    (log,) = (path / "appendonlydir").glob("*.incr.aof")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    remedy = f"; `rillet check '{path}' --salvage OUT` writes everything sound to the new directory OUT"
    with pytest.raises(LogCorrupt, match=re.escape(remedy) + "$") as caught:
        rillet.open(path, **how)
    assert (caught.value.path, str(caught.value).count("\n")) == (str(log), 0)
    assert isinstance(caught.value, rillet.StoreError)  # as every error about a directory that cannot be opened
    assert main(["check", str(path), "--salvage", str(tmp_path / "out")]) in (0, 1)
    with rillet.open(tmp_path / "out") as saved:
        assert saved.recovery is not None
