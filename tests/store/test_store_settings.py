"""rillet.open refuses a setting that would have no effect, and ":memory:" is a store in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.runtime.settings.settings import PARAMETERS, Settings
from rillet.store.arguments import store_settings
from rillet.testing.clock import StoreClock

WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"io_threads": 4}, "io_threads=4: rillet has one thread for input and output"),
    ({"replica_priority": 5}, "replica_priority=5 is a setting of rillet serve and has no effect on a store; omit it"),
    ({"daemonize": True}, "daemonize=True is a setting of rillet serve and has no effect on a store; omit it"),
    ({"tls_port": 7000}, "tls_port=7000 is a setting of rillet serve and has no effect on a store; omit it"),
    ({"port": 7000}, "port=7000 is a setting of rillet serve and has no effect on a store; store.serve() listens on a "
                     "socket"),
    ({"dir": "/tmp"}, "dir='/tmp' is a setting of rillet serve and has no effect on a store; the path of the store is "
                      "its directory"),
    ({"logfile": "x.log"}, "logfile='x.log' is a setting of rillet serve and has no effect on a store; omit it"),
    ({"shutdown_on_sigterm": "nosave"}, "shutdown_on_sigterm='nosave' is a setting of rillet serve and has no effect on"
                                        " a store; omit it"),
]  # fmt: skip
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"list_max_listpack_size": "x"}, "list_max_listpack_size='x': argument couldn't be parsed into an integer"),
    ({"databases": 0}, "databases=0: argument must be between 1 and 2147483647 inclusive"),
    ({"hz": 1.5}, "hz=1.5: text, a number or a bool expected"),
    ({"rdbcompression": 3}, "rdbcompression=3: argument must be 'yes' or 'no'"),
    ({"save": object}, f"save={object!r}: text, a number or a bool expected"),
]


@pytest.mark.parametrize(("settings", "reason"), WITHOUT_EFFECT + INVALID, ids=lambda case: str(case)[:40])
def test_a_setting_without_an_effect_is_refused(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    for where in ([], [tmp_path / "store"]):
        with pytest.raises(ValueError) as caught:
            rillet.open(*where, **settings)
        assert str(caught.value) == reason
    assert not (tmp_path / "store").exists()


FILES_ONLY: list[dict[str, Any]] = [{"appendfsync": "always"}, {"aof_checksums": True}, {"save": "60 1"},
                                    {"dbfilename": "x.rdb"}, {"log_entries_read": True}]  # fmt: skip


@pytest.mark.parametrize("settings", FILES_ONLY, ids=str)
def test_a_setting_of_files_is_refused_in_memory(tmp_path: Path, settings: dict[str, Any]) -> None:
    name, value = next(iter(settings.items()))
    message = f"{name}={value!r} has no effect on a store in memory; pass a path to open a store with files"
    for open_it in (rillet.open, StoreClock().open):
        with pytest.raises(ValueError) as caught:
            open_it(**settings)
        assert str(caught.value) == message
    with rillet.open(tmp_path / "store", **settings) as store:
        store.execute("PING")
    with rillet.open(tmp_path / "store", readonly=True, **settings) as store:
        store.execute("PING")


def test_settings_with_an_effect_are_applied() -> None:
    values: dict[str, Any] = {"hz": 1000, "maxclients": "7", "rdbcompression": False, "enable_debug_command": True,
              "hash_max_ziplist_value": 3, "proto_max_bulk_len": "2mb", "maxmemory": 0, "daemonize": False}  # fmt: skip
    with rillet.open(**values) as store:
        found = dict.fromkeys(("hz", "maxclients", "rdbcompression", "enable-debug-command", "hash-max-listpack-value",
                               "proto-max-bulk-len"), "")  # fmt: skip
        for name in found:
            found[name] = store.execute("CONFIG", "GET", name)[1].decode()
    assert list(found.values()) == ["500", "7", "no", "yes", "3", "2097152"]


def test_the_names_of_settings_are_settings() -> None:
    server, files = store_settings._SERVER_ONLY, store_settings._FILES_ONLY
    assert (server | files) <= PARAMETERS.keys()
    assert not server & files
    assert not any(PARAMETERS[name].absent for name in server | files)
    # A change that only a host with files can apply is such a setting.
    assert {name for name, entry in PARAMETERS.items() if entry.needs_host} <= server | files


def test_every_default_is_accepted() -> None:
    defaults = {entry.attribute: entry.default for entry in PARAMETERS.values()}
    assert vars(Settings(**defaults)) == vars(Settings())
    rillet.open(**{name: value for name, value in defaults.items() if name not in ("appendfsync", "timeout")}).close()


def test_memory_as_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with rillet.open(":memory:") as store, rillet.open(Path(":memory:")) as other:
        store.stream("s").add({"a": 1})
        assert store.path is None
        assert not other.stream("s").exists()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="needs the path of a directory"):
        rillet.open(":memory:", readonly=True)
    with rillet.open("./:memory:") as store:
        assert store.path == str(tmp_path / ":memory:")


@pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")
def test_an_attached_store_warns_of_settings_that_do_not_apply(tmp_path: Path) -> None:
    with rillet.open(tmp_path, compat="7.2", hz=20) as owner:
        rillet.open(tmp_path, compat="7.2", hz="20").close()
        expected = "the settings of the process that owns the store apply: hz is '20', not '30'; appendfsync is "
        with pytest.warns(RuntimeWarning) as caught:
            rillet.open(tmp_path, hz=30, appendfsync="always").close()
        assert [str(one.message) for one in caught] == [f"{tmp_path}: {expected}'everysec', not 'always'"]
        assert caught[0].filename == __file__
        owner.execute("CONFIG", "SET", "appendfsync", "always")
        rillet.open(tmp_path, appendfsync="always").close()
