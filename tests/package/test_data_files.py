"""The data files of the package: every build has them, and a missing or torn one is an error with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

import rillet
from rillet.commands.data_file import read_lines, read_sections
from tests.package.test_modes import LOADED, SRC


def data_files(folder: Path) -> dict[str, str]:
    """Return the texts of the data files in a package folder, by path, without the build's note."""
    files = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.txt")}
    files.pop("_not_compiled.txt", None)
    return files


@pytest.mark.both
def test_the_package_has_the_data_files_of_the_sources() -> None:
    files = data_files(LOADED)
    assert files == data_files(SRC)
    assert {name: len(read_lines(name)) for name in files} == {
        name: sum(not line.startswith("#") for line in text.splitlines()) for name, text in files.items()
    }
    assert len(files) >= 3


def test_lines_are_without_comments_and_sections_by_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words.txt").write_text("# Words.\n=a\n b\n c #\n=d\n# end\n")
    monkeypatch.setattr(rillet, "__file__", str(tmp_path / "__init__.py"))
    assert read_lines("words.txt") == ["=a", " b", " c #", "=d"]
    assert read_sections.__wrapped__("words.txt") == {"a": [" b", " c #"], "d": []}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, r"cannot read rillet/words.txt: .*No such file.* Install rillet again"),
        (b"\xff\n# end\n", r"cannot read rillet/words.txt: .*can't decode.* Install rillet again"),
        (b"", r"rillet/words.txt is torn: .* Install rillet again"),
        (b"=a\n b\n# en", r"rillet/words.txt is torn: .* Install rillet again"),
    ],
)
def test_a_missing_or_torn_file_is_an_import_error(
    data: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if data is not None:
        (tmp_path / "words.txt").write_bytes(data)
    monkeypatch.setattr(rillet, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(ImportError, match=message):
        read_lines("words.txt")
