"""The manifest of an archive: a base and increments. No commit is lost or seen in part, whatever is killed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rillet.spark.archive import layout
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import COMMITS, MANIFEST, OWN, Archive, folder_of
from rillet.spark.archive.manifest import ArchiveManifest, FileTable, Part, base_text, parse_base
from rillet.types.stream.id import StreamID
from tests.variants import long

STEPS = ("staged", "drafted", "committed", "placed", "merged", "exchanged", "settled", "pruned")


class Killed(BaseException):
    """Stands for a killed process."""


@pytest.fixture(autouse=True)
def _no_power_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def staged(archive: Archive, numbers: range, stream: str = "events") -> Part:
    """Return a staged file; its text is its numbers."""
    folder = archive.stage()
    path = f"{folder}/{stream}-{numbers.start}.part"
    text = " ".join(map(str, numbers))
    (archive.path / path).write_text(text)
    first, last = StreamID(numbers.start, 0), StreamID(numbers[-1], 0)
    return Part(path, stream, 0, first, last, len(numbers), len(text))


def append(archive: Archive, manifest: ArchiveManifest, numbers: range, *streams: str) -> ArchiveManifest:
    parts = [staged(archive, numbers, stream) for stream in streams or ("events",)]
    offset = {"streams": {**manifest.offset.get("streams", {}), **{part.stream: str(part.last) for part in parts}}}
    return archive.append(manifest, parts, offset, "schema")


def merge(archive: Archive, manifest: ArchiveManifest) -> ArchiveManifest:
    """Merge all files of a stream into one."""
    done = []
    for run in archive.mergeable(manifest, 2, 1 << 20):
        folder = archive.stage()
        text = " ".join((archive.path / old.path).read_text() for old in run)
        (archive.path / folder / "merged.part").write_text(text)
        part = Part(f"{folder}/merged.part", run[0].stream, 0, run[0].first, run[-1].last,
                    sum(old.rows for old in run), len(text))  # fmt: skip
        done.append((run, part))
    return archive.merge(manifest, done) if done else manifest


def numbers(archive: Archive, manifest: ArchiveManifest) -> dict[str, list[int]]:
    """Return the numbers of each stream that a reader of a manifest finds now."""
    found: dict[str, list[int]] = {}
    for file in manifest.files:
        texts = [place.read_text() for place in archive.places(manifest, file.path) if place.exists()]
        found.setdefault(file.stream, []).extend(map(int, texts[0].split()))
    return {stream: sorted(found[stream]) for stream in found}


def in_folders(archive: Archive) -> list[int]:
    """Return the numbers that a reader of the bare folders finds."""
    return sorted(int(word) for file in archive.path.glob("date=*/*/*.parquet") for word in file.read_text().split())


def test_a_commit_writes_its_changes_only(tmp_path: Path) -> None:
    """Its size is the same for 3 files and for 5,003, until the increments are worth a new base."""
    sizes = []
    for files in (3, 5003):
        archive = Archive(tmp_path / str(files))
        with archive.writing() as manifest:
            manifest = append(archive, manifest, range(1, 2))
            many = [
                Part(f"{folder_of('events', day)}/{day}-0_{day}-9_c1.parquet", "events", day, StreamID(day, 0),
                     StreamID(day, 9), 10, 1000)
                for day in range(20_000 - files, 20_000)
            ]  # fmt: skip
            manifest.files.add(many)
            base = archive.path / MANIFEST
            base.write_bytes(base_text(manifest))
        with archive.writing() as manifest:
            assert len(manifest.files) == files + 1
            before = base.read_bytes()
            for number in range(100_000, 100_010):
                manifest = append(archive, manifest, range(number, number + 1))
            assert base.read_bytes() == before
            written = sorted((archive.path / COMMITS).glob("*.json"))
            assert [int(file.stem) for file in written] == list(range(2, 12))
            sizes.append(len(json.dumps({**json.loads(written[-1].read_bytes()), "at": 0})))
        assert Archive(archive.path).manifest() == _same(manifest)
    assert sizes[0] == sizes[1]


def _same(manifest: ArchiveManifest) -> object:
    """Return what equals a manifest that was read, whose table of files is another object."""

    class Same:
        def __eq__(self, other: object) -> bool:
            assert isinstance(other, ArchiveManifest)
            assert list(other.files) == list(manifest.files)
            assert (other.commit, other.schema, other.offset) == (manifest.commit, manifest.schema, manifest.offset)
            assert (other.place, other.swap, other.replaced) == (manifest.place, manifest.swap, manifest.replaced)
            return True

    return Same()


def test_increments_become_a_base_and_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FEW_INCREMENTS", 3)
    archive, bases = Archive(tmp_path / "a"), set()
    with archive.writing() as manifest:
        for number in range(1, 60):
            manifest = append(archive, manifest, range(number, number + 1), "events", "others")
            base = parse_base((archive.path / MANIFEST).read_bytes())[1].commit
            bases.add(base)
            kept = sorted(int(file.stem) for file in (archive.path / COMMITS).glob("*.json"))
            assert kept == list(range(base + 1, number + 1))
            assert Archive(archive.path).manifest() == _same(manifest)
    gaps = [later - earlier for earlier, later in zip(sorted(bases)[1:], sorted(bases)[2:], strict=False)]
    assert 3 <= len(bases) <= 12
    assert gaps == sorted(gaps)  # the larger the base, the later the next one
    monkeypatch.setattr(layout, "MOST_INCREMENTS", 2)
    with archive.writing() as manifest:
        for number in range(60, 70):
            manifest = append(archive, manifest, range(number, number + 1))
            assert len(list((archive.path / COMMITS).glob("*.json"))) <= 2


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("few", [2, *long(1, 1000)])
def test_a_kill_at_each_step_leaves_a_commit_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, few: int
) -> None:
    """The writer is killed at the first, second, third ... time that it reaches the step; a new one continues."""
    monkeypatch.setattr(layout, "FEW_INCREMENTS", few)
    monkeypatch.setattr(layout, "MOST_INCREMENTS", few)
    archive, kills, next_number, finished = Archive(tmp_path / "a"), 0, 1, 0
    for turns in (1, 2, 3, 5, 9, 17, 2):
        left = [turns]

        def at(reached: str, left: list[int] = left) -> None:
            left[0] -= reached == step
            if reached == step and left[0] == 0:
                raise Killed

        archive.at = at
        try:
            with archive.writing() as manifest:
                next_number = int(str(manifest.offset.get("streams", {}).get("events", "0-0")).partition("-")[0]) + 1
                for _ in range(4):
                    manifest = append(archive, manifest, range(next_number, next_number + 2), "events", "others")
                    next_number += 2
                manifest = merge(archive, manifest)
                finished += 1
        except Killed:
            kills += 1
        seen = Archive(archive.path).manifest()
        last = seen.held("events").ms
        wanted = list(range(1, last + 1))
        assert numbers(archive, seen) in ({"events": wanted, "others": wanted}, {} if not wanted else None)
        bare = in_folders(archive)
        assert len(bare) <= 2 * last
        assert all(bare.count(number) <= 2 for number in set(bare))
    archive.at = lambda reached: None
    with archive.writing() as manifest:
        assert in_folders(archive) == sorted([*range(1, manifest.held("events").ms + 1)] * 2)
    assert kills >= 1 + (step not in ("merged", "exchanged", "pruned")) - (step == "pruned" and few == 1000)
    assert finished or step == "placed"


def test_random_commits_merges_and_kills_equal_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        monkeypatch.setattr(layout, "FEW_INCREMENTS", chance.randrange(1, 4))
        monkeypatch.setattr(layout, "MOST_INCREMENTS", chance.randrange(1, 8))
        archive, model = Archive(tmp_path / str(seed)), dict[str, int]()

        def at(reached: str, chance: random.Random = chance) -> None:
            if chance.random() < 0.05:
                raise Killed

        for _ in range(12):
            archive.at, before = at, dict(model)
            try:
                with archive.writing() as manifest:
                    for _ in range(chance.randrange(1, 5)):
                        if chance.random() < 0.3:
                            manifest = merge(archive, manifest)
                            continue
                        stream, more = chance.choice("abc"), chance.randrange(1, 4)
                        start = manifest.held(stream).ms + 1
                        before = dict(model)
                        model[stream] = start + more - 1
                        manifest = append(archive, manifest, range(start, start + more), stream)
                        before = dict(model)
            except Killed:
                pass
            found = numbers(archive, Archive(archive.path).manifest())
            assert found in [{name: [*range(1, one[name] + 1)] for name in one} for one in (model, before)]
            model = {name: len(found[name]) for name in found}


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_reader_sees_one_commit_while_bases_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """The writer commits three times, with a new base, between two steps of a reader."""
    monkeypatch.setattr(layout, "FEW_INCREMENTS", 2)
    monkeypatch.setattr(layout, "MOST_INCREMENTS", 2)
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        for number in range(1, 4):
            manifest = append(archive, manifest, range(number, number + 1))
        reader, steps = Archive(archive.path), [0]

        def hurried(call: Callable[..., object]) -> Callable[..., object]:
            def step(*arguments: object) -> object:
                nonlocal manifest
                steps[0] += 1
                if steps[0] == moment:
                    for number in range(4, 7):
                        manifest = append(archive, manifest, range(number, number + 1))
                return call(*arguments)

            return step

        for name in ("_bytes", "_increments", "_is_base"):
            monkeypatch.setattr(reader, name, hurried(getattr(reader, name)))
        seen = reader.manifest()
        assert numbers(archive, seen) == {"events": list(range(1, seen.commit + 1))}
        assert seen.commit in ((3, 6) if moment > 1 else (6,))


def test_damage_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_PAUSE", 0.0)
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        for number in range(1, 5):
            manifest = append(archive, manifest, range(number, number + 1))
    commits = archive.path / COMMITS
    third = (commits / "000000000003.json").read_bytes()
    (commits / "000000000003.json").unlink()
    with pytest.raises(ArchiveError, match="is damaged: _rillet/commits lacks commit 3"):
        archive.manifest()
    (commits / "000000000003.json").write_bytes(third[:-9])
    with pytest.raises(ArchiveError, match="is damaged: JSONDecodeError"):
        archive.manifest()
    (commits / "000000000003.json").write_bytes(third.replace(b'"commit": 3', b'"commit": 4'))
    with pytest.raises(ArchiveError, match="the increment 3 holds commit 4"):
        archive.manifest()
    (commits / "000000000003.json").write_bytes(third.replace(b'"format": 2', b'"format": 9'))
    with pytest.raises(ArchiveError, match="has format 9; this version reads 1 to 3"):
        archive.manifest()
    (commits / "000000000003.json").write_bytes(third)
    (commits / "000000000004.json.tmp").write_bytes(b"left by a copying program")
    assert archive.manifest().commit == 4


def test_a_listing_made_during_a_commit_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lack an increment and have the next one, although the base is the same."""
    archive, listings = Archive(tmp_path / "a"), list[list[str]]()
    with archive.writing() as manifest:
        for number in range(1, 5):
            manifest = append(archive, manifest, range(number, number + 1))
    real = os.listdir

    def listed(folder: Path) -> list[str]:
        listings.append([name for name in real(folder) if listings or "03" not in name])
        return listings[-1]

    monkeypatch.setattr(os, "listdir", listed)
    assert Archive(archive.path).manifest() == _same(manifest)
    assert [len(names) for names in listings] == [2, 3]


def test_a_failed_write_leaves_the_manifest_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        manifest = append(archive, manifest, range(1, 3))
        files = list(manifest.files)
        with monkeypatch.context() as full:
            full.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(ArchiveError, match="cannot be written: No space left on device"):
                append(archive, manifest, range(3, 5), "events", "others")
        assert list(manifest.files) == files
        assert (manifest.last("events"), manifest.streams()) == (StreamID(2, 0), ["events"])
        manifest = append(archive, manifest, range(3, 5))
        assert numbers(archive, manifest) == {"events": [1, 2, 3, 4]}


@pytest.mark.parametrize("whole", [True, False])
def test_a_commit_whose_folder_cannot_be_synced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """It is renamed, so a reader sees it; whether it survives a power failure is unknown."""
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        manifest = append(archive, manifest, range(1, 3))
        if whole:
            monkeypatch.setattr(layout, "MOST_INCREMENTS", 0)
        with monkeypatch.context() as broken:
            _broken_sync(broken, OWN if whole else COMMITS)
            with pytest.raises(ArchiveError, match="whether commit 2 is durable is unknown: Input/output error"):
                append(archive, manifest, range(3, 5))
        with pytest.raises(ArchiveError, match="must be read again before the next commit"):
            append(archive, manifest, range(3, 5))
    assert Archive(archive.path).manifest().commit == 2
    with archive.writing() as manifest:
        manifest = append(archive, manifest, range(5, 7))
        assert (manifest.commit, numbers(archive, manifest)) == (3, {"events": [1, 2, 3, 4, 5, 6]})


def test_a_writer_does_not_begin_before_the_last_commit_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer before it may have been killed between rename and sync; trimming must not rely on such a commit."""
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        append(archive, manifest, range(1, 3))
    for folder in (OWN, COMMITS):
        with monkeypatch.context() as broken:
            _broken_sync(broken, folder)
            with pytest.raises(ArchiveError, match="cannot be written: Input/output error"), archive.writing():
                pass


def _broken_sync(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Let each sync of a folder of the archive fail."""

    def sync(path: Path) -> None:
        if str(path).endswith(f"/a/{folder}"):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(layout, "sync", sync)


def test_format_1_is_read_and_the_next_commit_writes_format_2(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        manifest = append(archive, manifest, range(1, 5))
    file = next(iter(manifest.files))
    old = {
        "format": 1, "commit": 1, "schema": "schema", "offset": manifest.offset, "place": {}, "swap": {},
        "replaced": {},
        "files": [{**file._asdict(), "first": str(file.first), "last": str(file.last)}],
    }  # fmt: skip
    (archive.path / MANIFEST).write_text(json.dumps(old, indent=1))
    assert archive.manifest().commit == 1
    with archive.writing() as manifest:
        assert numbers(archive, manifest) == {"events": [1, 2, 3, 4]}
        manifest = append(archive, manifest, range(5, 7))
    assert json.loads((archive.path / MANIFEST).read_bytes())["format"] == 2
    assert not list((archive.path / OWN / "commits").iterdir())
    assert numbers(archive, Archive(archive.path).manifest()) == {"events": [1, 2, 3, 4, 5, 6]}


def test_only_changed_folders_are_looked_at_for_merging(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        for number in range(1, 4):
            manifest = append(archive, manifest, range(number, number + 1), "a", "b")
        assert [run[0].stream for run in archive.mergeable(manifest, 3, 1 << 20)] == ["a", "b"]
        assert archive.mergeable(manifest, 4, 1 << 20) == []
        assert manifest.files.changed == set()
        manifest = append(archive, manifest, range(4, 5), "b")
        assert manifest.files.changed == {folder_of("b", 0)}
        assert [run[0].stream for run in archive.mergeable(manifest, 4, 1 << 20)] == ["b"]
        assert [run[0].stream for run in archive.mergeable(manifest, 3, 1 << 20)] == ["a", "b"]
        manifest = merge(archive, manifest)
        assert archive.mergeable(manifest, 2, 1 << 20) == []
    table = FileTable(manifest.files)
    assert (len(table), table.streams(), table.last("b"), table.last("c")) == (
        2, ["a", "b"], StreamID(4, 0), StreamID(0, 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "path"),
    [("replace", ".parquet"), ("listdir", COMMITS)],
    ids=["a file is placed", "increments are removed"],
)
def test_a_failed_step_after_a_commit_is_reported_and_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, path: str
) -> None:
    archive, real = Archive(tmp_path / "a"), getattr(os, call)

    def fails(*paths: Path) -> object:
        if str(paths[-1]).endswith(path):
            raise OSError(5, "Input/output error")
        return real(*paths)

    message = "commit 2 is written, but a step after it failed: Input/output error"
    with archive.writing() as manifest:
        manifest = append(archive, manifest, range(1, 3))
        monkeypatch.setattr(layout, "MOST_INCREMENTS", 0)
        with monkeypatch.context() as broken:
            broken.setattr(os, call, fails)
            with pytest.raises(ArchiveError, match=message):
                append(archive, manifest, range(3, 5))
        with pytest.raises(ArchiveError, match="must be read again before the next commit"):
            append(archive, manifest, range(3, 5))
    if call == "replace":
        with monkeypatch.context() as broken:
            broken.setattr(os, call, fails)
            with pytest.raises(ArchiveError, match=message), archive.writing():
                pass
        assert numbers(archive, archive.manifest()) == {"events": [1, 2, 3, 4]}
    with archive.writing() as manifest:
        manifest = append(archive, manifest, range(5, 7))
        assert (manifest.commit, numbers(archive, manifest)) == (3, {"events": [1, 2, 3, 4, 5, 6]})
    assert in_folders(archive) == [1, 2, 3, 4, 5, 6]
