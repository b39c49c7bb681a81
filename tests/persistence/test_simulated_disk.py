"""The simulated disk: equal to the real one without faults, and as cruel at a power loss as disk.py allows."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from errno import EIO, ENOSPC, EROFS
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.persistence.disk import REAL, Disk, write_all
from tests.persistence.simulated_disk import FOREVER, SECTOR, PowerLoss, SimulatedDisk, losses
from tests.variants import by_speed

SEEDS = 300
ROOT = Path("/d")


def disk_with_folder() -> SimulatedDisk:
    return SimulatedDisk(folders=["/", "/d"])


def left(disk: SimulatedDisk, name: str, before: dict[str, bytes] | None = None) -> set[bytes | None]:
    """Return the possible contents of the name after a power loss, over many seeds."""
    found: set[bytes | None] = set()
    for seed in range(SEEDS):
        power = PowerLoss(disk.journal, before, ["/", "/d"])
        while power.at < len(power.journal):
            power.step()
        found.add(power.image(Random(seed)).files().get(f"/d/{name}"))
    return found


def put(disk: Disk, name: str, data: bytes, *, sync: bool = True) -> None:
    file = disk.create(ROOT / name)
    write_all(file, data)
    if sync:
        file.sync()
    file.close()


# -- as the real one -----------------------------------------------------------------------------------

_NAME = st.sampled_from(["a", "b", "sub/c", "sub/d", "none/e", "sub", "a/f"])
_STEP = st.one_of(
    st.tuples(st.sampled_from(["append_to", "create", "read", "size", "exists", "remove", "names", "make_folder",
                               "sync_folder"]), _NAME),
    st.tuples(st.just("rename"), _NAME, _NAME),
    st.tuples(st.just("truncate"), _NAME, st.integers(0, 1500)),
    st.tuples(st.just("write"), st.integers(0, 5), st.binary(max_size=1200)),
    st.tuples(st.sampled_from(["file_sync", "close"]), st.integers(0, 5)),
    st.tuples(st.just("file_truncate"), st.integers(0, 5), st.integers(0, 1500)),
)  # fmt: skip


class Driven:
    """One of the two disks, and its open files."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self.disk = disk
        self.root = root
        self.opened: list[Any] = []

    def do(self, step: tuple[Any, ...]) -> Any:
        """Return the result of the step: a value, or the number of the error."""
        try:
            return self._do(*step)
        except OSError as error:
            return type(error), error.errno

    def _do(self, what: str, *args: Any) -> Any:
        if what in ("write", "file_sync", "close", "file_truncate"):
            if not self.opened:
                return None
            number = args[0] % len(self.opened)
            file = self.opened.pop(number) if what == "close" else self.opened[number]
            return getattr(file, what.removeprefix("file_"))(*args[1:])
        args = tuple(self.root / one if isinstance(one, str) else one for one in args)
        if what in ("append_to", "create"):
            self.opened.append(getattr(self.disk, what)(*args))
            return None
        if what == "read":
            with self.disk.read_from(*args) as file:
                return file.read()
        if what in ("size", "rename") and self.is_folder(args[0]):
            return None  # a folder's size is the file system's own affair, and nobody renames folders
        return getattr(self.disk, what)(*args)

    def is_folder(self, path: Path) -> bool:
        """Return whether the path is a folder."""
        return path.is_dir() if self.disk is REAL else str(path) in getattr(self.disk, "folders", ())

    def tree(self) -> dict[str, bytes | None]:
        """Return every path with its bytes; None for a folder."""
        if isinstance(self.disk, SimulatedDisk):
            inside = str(self.root) + "/"
            files: dict[str, bytes | None] = {**self.disk.files(), **dict.fromkeys(self.disk.folders)}
            return {path.removeprefix(inside): data for path, data in files.items() if path.startswith(inside)}
        return {
            str(path.relative_to(self.root)): None if path.is_dir() else path.read_bytes()
            for path in self.root.rglob("*")
        }


@settings(max_examples=by_speed(100, 60, 300), deadline=None)
@given(steps=st.lists(_STEP, max_size=40))
def test_without_faults_it_equals_the_real_disk(steps: list[tuple[Any, ...]]) -> None:
    root = Path(tempfile.mkdtemp())
    real = Driven(REAL, root)
    folders = [str(one) for one in [*root.parents, root]]
    simulated = Driven(SimulatedDisk(folders=folders), root)
    try:
        for step in steps:
            assert simulated.do(step) == real.do(step), step
            assert simulated.tree() == real.tree(), step
    finally:
        for file in real.opened:
            file.close()
        shutil.rmtree(root)
    # What is left when nothing at all is lost is what everyone saw, and everything synced is never less.
    disk = simulated.disk
    assert isinstance(disk, SimulatedDisk)
    for folder in sorted(disk.folders):
        disk.sync_folder(Path(folder))
    for path, number in disk.names_of.items():
        disk._sync(path, number)
    power = PowerLoss(disk.journal, folders=folders)
    while power.at < len(power.journal):
        power.step()
    for seed in range(3):
        image = power.image(Random(seed))
        assert image.files() == disk.files()
        assert image.folders == disk.folders


# -- when the power goes -------------------------------------------------------------------------------


def test_synced_bytes_survive_a_power_loss() -> None:
    disk = disk_with_folder()
    put(disk, "a", b"x" * 2000)
    assert None in left(disk, "a")  # the name was not
    disk.sync_folder(ROOT)
    assert left(disk, "a") == {b"x" * 2000}


def test_any_unsynced_sector_may_survive() -> None:
    disk = disk_with_folder()
    put(disk, "a", b"a" * 700)
    disk.sync_folder(ROOT)
    file = disk.append_to(ROOT / "a")
    for letter in (b"b", b"c", b"d", b"e"):
        file.write(letter * 1000)
    whole = disk.files()["/d/a"]
    found = {one for one in left(disk, "a") if one is not None}
    assert all(one.startswith(b"a" * 700) and len(one) <= len(whole) for one in found)
    assert b"a" * 700 in found
    assert whole in found
    assert any(len(one) % SECTOR > 0 and whole.startswith(one) for one in found - {whole}), "torn at any byte"
    lost = [one for one in found if len(one) > 2 * SECTOR and not whole.startswith(one)]
    assert any(bytes(SECTOR) in one and one[-1:] in b"bcde" for one in lost), "a later sector without an earlier one"
    assert any(not set(one) <= set(b"abcde\0") for one in lost), "bytes of nobody knows what"
    file.sync()
    assert left(disk, "a") == {whole}


def test_an_unsynced_truncation_may_be_undone() -> None:
    before = {"/d/a": b"x" * 3000}
    disk = SimulatedDisk(before, ["/", "/d"])
    file = disk.append_to(ROOT / "a")
    file.truncate(1000)
    file.write(b"y" * 600)
    found = left(disk, "a", before)
    assert {b"x" * 3000, b"x" * 1000, b"x" * 1000 + b"y" * 600} <= found
    file.sync()
    assert left(disk, "a", before) == {b"x" * 1000 + b"y" * 600}
    disk.truncate(ROOT / "a", 10)
    assert left(disk, "a", before) == {b"x" * 10}


def test_a_rename_may_survive_without_the_data() -> None:
    before = {"/d/a": b"old"}
    disk = SimulatedDisk(before, ["/", "/d"])
    put(disk, "temp", b"new", sync=False)
    disk.rename(ROOT / "temp", ROOT / "a")
    disk.sync_folder(ROOT)
    assert {b"", b"new"} <= left(disk, "a", before)
    assert b"old" not in left(disk, "a", before)

    disk = SimulatedDisk(before, ["/", "/d"])
    put(disk, "temp", b"new")
    disk.rename(ROOT / "temp", ROOT / "a")
    assert left(disk, "a", before) == {b"old", b"new"}
    assert left(disk, "temp", before) == {None, b"new"}
    disk.sync_folder(ROOT)
    assert left(disk, "a", before) == {b"new"}
    assert left(disk, "temp", before) == {None}


def test_a_removal_may_be_undone_until_the_folder_is_synced() -> None:
    before = {"/d/a": b"1", "/d/b": b"2"}
    disk = SimulatedDisk(before, ["/", "/d"])
    disk.remove(ROOT / "a")
    assert left(disk, "a", before) == {None, b"1"}
    assert left(disk, "b", before) == {b"2"}
    disk.sync_folder(ROOT)
    assert left(disk, "a", before) == {None}


def test_a_file_moved_to_another_folder_is_in_one_of_them() -> None:
    before = {"/d/a": b"1"}
    for synced in (None, ROOT, ROOT / "sub"):
        disk = SimulatedDisk(before, ["/", "/d", "/d/sub"])
        disk.rename(ROOT / "a", ROOT / "sub/a")
        if synced is not None:
            disk.sync_folder(synced)
        found = set()
        for seed in range(100):
            *_, image = losses(disk, before, ["/", "/d", "/d/sub"], seed)
            found.add(tuple(sorted(image.files())))
        everywhere = {("/d/a",), ("/d/a", "/d/sub/a"), ("/d/sub/a",)}
        assert found == {None: everywhere, ROOT: {("/d/sub/a",)}, ROOT / "sub": everywhere - {("/d/a",)}}[synced]


def test_an_unsynced_folder_may_be_lost_with_its_content() -> None:
    disk = SimulatedDisk()
    disk.make_folder(ROOT)
    put(disk, "a", b"x")
    disk.sync_folder(ROOT)
    found = set()
    for seed in range(30):
        *_, image = losses(disk, {}, ["/"], seed)
        found.add((tuple(sorted(image.folders)), tuple(image.files())))
    assert found == {(("/",), ()), (("/", "/d"), ("/d/a",))}
    disk.sync_folder(Path("/"))
    for seed in range(30):
        *_, image = losses(disk, {}, ["/"], seed)
        assert image.files() == {"/d/a": b"x"}


def test_a_sync_after_a_failed_one_does_not_cover_the_same_bytes() -> None:
    before = {"/d/a": b"a" * SECTOR}
    disk = SimulatedDisk(before, ["/", "/d"])
    file = disk.append_to(ROOT / "a")
    file.write(b"b" * SECTOR + b"c" * 100)
    disk.fail(EIO, "sync")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    all_of_it = b"a" * SECTOR + b"b" * SECTOR + b"c" * 100
    assert {all_of_it, b"a" * SECTOR + bytes(SECTOR) + b"c" * 100} <= left(disk, "a", before)
    file.write(b"d" * 10)  # the last sector is written again with the same content
    file.sync()
    assert left(disk, "a", before) == {all_of_it + b"d" * 10, b"a" * SECTOR + bytes(SECTOR) + b"c" * 100 + b"d" * 10}


def test_a_failed_sync_may_drop_the_cache() -> None:
    disk = SimulatedDisk({"/d/a": b"a" * 10}, ["/", "/d"])
    disk.evicts = True
    file = disk.append_to(ROOT / "a")
    file.write(b"b" * 10)
    disk.fail(EIO, "sync")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    assert disk.files() == {"/d/a": b"a" * 10 + bytes(10)}


def test_a_seed_repeats_its_image() -> None:
    disk = disk_with_folder()
    put(disk, "a", Random(1).randbytes(5000), sync=False)
    disk.rename(ROOT / "a", ROOT / "b")
    images = [[one.files() for one in losses(disk, {}, ["/", "/d"], seed)] for seed in (1, 1, 2)]
    assert images[0] == images[1] != images[2]
    assert len(images[0]) == len(disk.journal) + 1


# -- faults --------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[SimulatedDisk], Any]] = {
    "create": lambda disk: disk.create(ROOT / "new"),
    "open": lambda disk: disk.append_to(ROOT / "a"),
    "read": lambda disk: disk.read_from(ROOT / "a"),
    "rename": lambda disk: disk.rename(ROOT / "a", ROOT / "b"),
    "remove": lambda disk: disk.remove(ROOT / "a"),
    "truncate": lambda disk: disk.truncate(ROOT / "a", 1),
    "sync": lambda disk: disk._sync("/d/a", 0),
    "write": lambda disk: disk._write("/d/a", 0, b"more"),
    "sync_folder": lambda disk: disk.sync_folder(ROOT),
    "make_folder": lambda disk: disk.make_folder(ROOT / "deeper"),
}


@pytest.mark.parametrize("error", [ENOSPC, EIO, EROFS])
@pytest.mark.parametrize("kind", CALLS)
def test_any_call_can_fail(kind: str, error: int) -> None:
    disk = SimulatedDisk({"/d/a": b"12345"}, ["/", "/d"])
    for kinds, times in (((kind,), 1), ((), 2), ((kind, "other"), FOREVER)):
        disk.fail(error, *kinds, times=times)
        for _ in range(min(times, 5)):
            with pytest.raises(OSError, match=os.strerror(error)) as raised:
                CALLS[kind](disk)
            assert raised.value.errno == error
            assert raised.value.filename is not None
        assert disk.files() == {"/d/a": b"12345"}  # nothing was done
        disk.works()
    CALLS[kind](disk)


def test_a_fault_occurs_at_its_planned_call() -> None:
    disk = disk_with_folder()
    file = disk.create(ROOT / "a")
    assert disk.calls == 1
    disk.fail(ENOSPC, "write", at=2)
    disk.fail(EIO, at=4)
    file.write(b"1")
    file.write(b"2")
    with pytest.raises(OSError, match="No space left"):
        file.write(b"3")
    file.sync()
    with pytest.raises(OSError, match="Input/output"):
        disk.remove(ROOT / "a")
    file.write(b"4")
    assert disk.files() == {"/d/a": b"124"}


def test_short_writes_are_completed() -> None:
    disk = disk_with_folder()
    file = disk.create(ROOT / "a")
    disk.fail(0, "write", short=3)
    write_all(file, b"0123456789")
    assert disk.files() == {"/d/a": b"0123456789"}
    disk.fail(ENOSPC, "write", short=4, times=1)
    with pytest.raises(OSError, match="No space left"):
        write_all(file, b"abcdefghij")
    assert disk.files() == {"/d/a": b"0123456789abcd"}
    file.truncate(10)
    write_all(file, b"k")
    assert disk.files() == {"/d/a": b"0123456789k"}
