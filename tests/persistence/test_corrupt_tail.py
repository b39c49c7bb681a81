"""aof-load-corrupt-tail-max-size: the length of an invalid end of a log that is cut off, as in newer servers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from rillet.errors import LogCorrupt
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local

GARBAGE = {
    "bytes": b"garbage\r\n" * 5, "a wrong count": b"*x\r\n$3\r\nSET\r\n", "a wrong size": b"*2\r\n$x\r\nGET\r\n",
    "in a transaction": b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\nno command\r\n",
}  # fmt: skip

TORN: dict[Path, str] = {}  # by folder: the sentence about the torn end at the last opening


def written(folder: Path) -> Path:
    """Return the path of a log with one SET."""
    local = Local(Engine(Settings()))
    log = AppendOnlyLog(folder, fsync="no")
    log.open(local.engine)
    local("SET", "k", "v")
    log.close()
    [path] = folder.glob("*.incr.aof")
    return path


def opened(folder: Path, corrupt_tail: int, truncates: bool = True) -> Local:
    """Open and close the log, and return the engine with its data."""
    local = Local(Engine(Settings()))
    log = AppendOnlyLog(folder, fsync="no")
    log.corrupt_tail_max_size, log.load_truncated = corrupt_tail, truncates
    TORN[folder] = log.open(local.engine).torn
    log.close()
    return local


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("what", GARBAGE)
def test_an_invalid_tail_is_cut_off_up_to_the_configured_size(tmp_path: Path, what: str, truncates: bool) -> None:
    """A tail shorter than the setting is cut off, and the log continues there; a longer one is rejected."""
    path = written(tmp_path / "log")
    good = path.read_bytes()
    path.write_bytes(good + GARBAGE[what])
    size = len(GARBAGE[what])
    for limit in (0, size):
        with pytest.raises(LogCorrupt):
            opened(tmp_path / "log", limit, truncates)
        assert path.read_bytes() == good + GARBAGE[what]
    local = opened(tmp_path / "log", size + 1, truncates)
    assert re.search(f"{size} bytes of .* were dropped at offset {len(good)}", TORN[tmp_path / "log"])
    assert local("GET", "k") == b"v"
    assert path.read_bytes() == good
    assert opened(tmp_path / "log", 0)("GET", "k") == b"v"


def test_an_invalid_tail_of_an_earlier_file_is_rejected(tmp_path: Path) -> None:
    path = written(tmp_path / "log")
    path.write_bytes(path.read_bytes() + b"garbage\r\n")
    shutil.copy(written(tmp_path / "other"), tmp_path / "log" / "appendonly.aof.2.incr.aof")
    manifest = tmp_path / "log" / "appendonly.aof.manifest"
    manifest.write_text(manifest.read_text() + "file appendonly.aof.2.incr.aof seq 2 type i\n")
    with pytest.raises(LogCorrupt):
        opened(tmp_path / "log", 1000)
