"""What may lie in a store's directory, and what is said of anything else."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.errors import NewerFormat, NotAStore, StoreError
from tests.forked import ROOT, ran
from tests.store.process import Other


def test_a_new_store_and_its_files(tmp_path: Path) -> None:
    path = tmp_path / "events.rillet"
    with rillet.open(path) as store:
        store.stream("s").add({"a": 1})
        assert store.path == str(path)
        assert store.owner
        assert store.socket == str(path / "socket")
        assert sorted(os.listdir(path)) == ["appendonlydir", "lock", "owner.json", "rillet.json", "socket"]
        announced = json.loads((path / "owner.json").read_text())
        assert (announced["pid"], announced["socket"]) == (os.getpid(), str(path / "socket"))
    assert sorted(os.listdir(path)) == ["appendonlydir", "lock", "rillet.json"]
    assert json.loads((path / "rillet.json").read_text()) == {"format": 1, "written_by": rillet.__version__}
    with rillet.open(str(path)) as store:
        assert len(store.stream("s")) == 1


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        assert store.owner


@pytest.mark.parametrize("owner", ["this", "process"])
def test_missing_folders_are_not_created(tmp_path: Path, owner: Any) -> None:
    missing = tmp_path / "typo"
    for path in (missing / "x", missing / "x" / "y" / "z"):
        text = f"^{path} cannot be created: {missing} does not exist; create the folder first, or correct the path$"
        with pytest.raises(StoreError, match=text):
            rillet.open(path, owner=owner)
        with pytest.raises(StoreError, match=text):
            rillet.follow("redis://127.0.0.1:1", path, timeout=0)
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore, match=f"{tmp_path / 'file'} is a file, not the directory of a store"):
        rillet.open(tmp_path / "file" / "x", owner=owner)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("owner", ["this", "process"])
def test_create_false_opens_existing_stores_only(tmp_path: Path, owner: Any) -> None:
    path = tmp_path / "store"
    (tmp_path / "empty").mkdir()
    for name, text in (("store", "store does not exist"), ("empty", "empty is empty"), ("a/b", "b does not exist")):
        with pytest.raises(NotAStore, match=f"{text}, so there is no store to open$"):
            rillet.open(tmp_path / name, create=False, owner=owner)
    assert os.listdir(tmp_path) == ["empty"]
    assert os.listdir(tmp_path / "empty") == []
    with pytest.raises(ValueError, match="create=False needs the path of a directory"):
        rillet.open(create=False)
    rillet.open(path).close()
    with rillet.open(path, create=False, owner=owner) as store:
        store.execute("SET", "k", "v")
        with rillet.open(path, create=False) as attached:
            assert attached.execute("GET", "k") == b"v"
        copied = pickle.dumps(store)
    shutil.rmtree(path)
    path.mkdir()
    with pytest.raises(NotAStore, match="is empty"):
        pickle.loads(copied)
    assert os.listdir(path) == []


def test_a_file_is_not_opened_as_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotAStore, match="is a file, (not|neither) the directory of a store"):
            rillet.open(path)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore, match=r"is not a store: it has no rillet.json, but 'letter.txt'; pass an empty"):
        rillet.open(tmp_path)
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_the_format_of_a_newer_rillet_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "rillet.json").write_text('{"format": 2, "written_by": "9.1"}')
    with pytest.raises(
        NewerFormat, match=r"has format 2, written by rillet 9.1; .* reads formats up to 1: upgrade rillet"
    ):
        rillet.open(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": "1"}', '{"format": null}', '{"format": 0}', "\xff"]
)
def test_a_damaged_marker_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "rillet.json").write_text(content, encoding="latin-1")
    with pytest.raises(NotAStore, match=r"rillet.json: offset \d+: .* expected: the marker of the store is damaged"):
        rillet.open(tmp_path)


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 30) / "events.rillet"
    path.parent.mkdir()
    with rillet.open(path) as store, rillet.open(path) as attached:
        assert store.socket is not None
        assert len(store.socket) <= 107
        assert not attached.owner
        folder = Path(store.socket).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        attached.stream("s").add({"a": 1})
        assert len(store.stream("s")) == 1
        store.close()
        assert not folder.exists()


def test_what_a_killed_owner_left_is_tidied_up(tmp_path: Path) -> None:
    for name in ("short", "long" * 30):
        path = tmp_path / name / "events.rillet"
        path.parent.mkdir()
        other = Other(path)
        other.ask("store.stream('s').add({'a': 1}).ms > 0")
        left = Path(json.loads((path / "owner.json").read_text())["socket"])
        other.kill()
        assert left.exists()
        assert (path / "owner.json").exists()
        (path / ".owner.json.123").write_text("half")
        with rillet.open(path) as store:
            assert store.owner
            assert len(store.stream("s")) == 1
            assert json.loads((path / "owner.json").read_text())["pid"] == os.getpid()
            assert not (path / ".owner.json.123").exists()
        assert not left.exists()
        assert left.parent == path or not left.parent.exists()


@pytest.mark.parametrize("in_force", [True, False])
def test_a_manifest_that_was_being_written(tmp_path: Path, in_force: bool) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "v")
    manifest = tmp_path / "appendonlydir" / "appendonly.aof.manifest"
    draft = manifest.with_name(f"temp-{manifest.name}")
    if in_force:
        draft.write_bytes(manifest.read_bytes()[:20])
    else:  # the first one of the log, whose files have their names already
        manifest.rename(draft)
    with rillet.open(tmp_path) as store:
        assert store.execute("GET", "k") == b"v"
    assert manifest.exists()
    assert not draft.exists()


def test_an_owner_json_of_nonsense_does_not_matter(tmp_path: Path) -> None:
    for content in (b"", b"{", b"[1]", b'{"pid": "x", "socket": 1}', b"\xff"):
        (tmp_path / "store").mkdir(exist_ok=True)
        (tmp_path / "store" / "rillet.json").write_text('{"format": 1}')
        (tmp_path / "store" / "owner.json").write_bytes(content)
        with rillet.open(tmp_path / "store") as store:
            assert store.owner


@pytest.mark.parametrize("prepared", ["empty", "store"])
def test_a_directory_that_cannot_be_written(prepared: str) -> None:
    """As another user where this one is root, to whom nothing is forbidden."""
    folder = Path(tempfile.mkdtemp(prefix="rillet-test-", dir="/tmp"))
    try:
        if prepared == "store":
            with rillet.open(folder):
                pass
        folder.chmod(0o555)
        code = """import os, sys, rillet, rillet.store
if os.geteuid() == 0: os.setuid(65534)
try: rillet.open(sys.argv[1])
except rillet.StoreError as error: print(error)"""
        _, output, errors = ran(code, folder, cwd="/")
        assert output == f"{folder} cannot be written: this user has no permission\n", errors
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unknown settings: nonsense"):
        rillet.open(nonsense=1)
    with pytest.raises(ValueError, match="appendfsync must be 'always', 'everysec' or 'no', not 'often'"):
        rillet.open(tmp_path, appendfsync="often")  # type: ignore[arg-type]
    with rillet.open(stream_node_max_entries=2) as store:
        store.stream("s").add_many([{"a": 1}] * 5)
        assert store.stream("s").info()["radix-tree-keys"] == 3


def test_a_server_that_is_not_there() -> None:
    from tests.judge import free_port

    with rillet.connect(f"redis://127.0.0.1:{free_port()}") as store:
        stream = store.stream("s")
        with pytest.raises(StoreError, match=r"the server at 127.0.0.1:\d+ did not answer: .*refused"):
            stream.add({"a": 1})
    with pytest.raises(StoreError, match="'nonsense' is not the address of a server"):
        rillet.connect("nonsense")


def test_repr_shows_no_password() -> None:
    with rillet.connect("redis://user:secret@127.0.0.1:1/0") as store:
        assert repr(store) == "Store('redis://127.0.0.1:1/0')" or "secret" not in repr(store)


def test_the_owner_refuses_to_be_shut_down_by_a_command(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store, rillet.open(tmp_path) as attached:
        for one in (store, attached):
            with pytest.raises(rillet.CommandError, match="^ERR SHUTDOWN needs a server"):
                one.execute("SHUTDOWN")
        assert attached.execute("PING") == b"PONG"


def test_config_set_changes_appendfsync(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        for policy in ("always", "no", "everysec", "always"):
            store.execute("CONFIG", "SET", "appendfsync", policy)
            assert store.execute("CONFIG", "GET", "appendfsync") == [b"appendfsync", policy.encode()]
            assert store.transport.engine.log.syncer.fsync == policy  # type: ignore[attr-defined]
        with pytest.raises(rillet.CommandError, match="CONFIG SET failed"):
            store.execute("CONFIG", "SET", "appendonly", "yes")


def test_a_store_that_nobody_refers_to_is_closed(tmp_path: Path) -> None:
    stream = rillet.open(tmp_path).stream("s")
    stream.add({"a": 1})
    assert stream.store.owner
    del stream
    with rillet.open(tmp_path) as store:
        assert store.owner
        assert len(store.stream("s")) == 1


def test_the_end_of_the_process_closes_the_store(tmp_path: Path) -> None:
    code = "import rillet, sys; store = rillet.open(sys.argv[1]); store.stream('s').add({'a': 1})"
    source = str(Path(rillet.__file__).parent.parent)
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "s")]
    environment = {**os.environ, "PYTHONPATH": source}
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert told.returncode == 0
    assert told.stderr == ""
    assert sorted(os.listdir(tmp_path / "s")) == ["appendonlydir", "lock", "rillet.json"]


def test_a_path_may_begin_with_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/one", Path("~/two"), b"~/three"):
        with rillet.open(path) as store:  # type: ignore[arg-type]
            assert store.path == str(tmp_path / Path(os.fsdecode(path)).name)


@pytest.mark.parametrize("url", ["redis://user:secret@host:1/0", "rediss://h", "unix:///tmp/x", "redis+cluster://a,b"])
def test_a_url_is_not_a_path(url: str) -> None:
    with pytest.raises(ValueError, match=r"^[a-z+]+://\.\.\. is a url.*rillet\.connect\(url\)"):
        rillet.open(url)
    assert not Path(url.split("/")[0]).exists()
