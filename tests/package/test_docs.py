"""The README's program runs, the programs on the other pages parse, and every link resolves.

`make docs` also builds the site in strict mode, which resolves the links to the generated pages in reference/.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.package.test_modes import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?:\]\(|src=\")(?!https?:|(?:../)*reference/)([^)#\"]+)")


def programs(page: Path) -> list[str]:
    return _PROGRAM.findall(page.read_text())


def test_the_readmes_first_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(programs(ROOT / "README.md")[0], "README.md", "exec"), {})
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("bill")] == [
        "bill 42 99.90",
        "bill 7 12.00",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_parse_and_links_resolve(page: Path) -> None:
    for program in programs(page):
        if not program.startswith(">>>"):
            compile(program, page.name, "exec")
    missing = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_the_glossary_names_files_that_exist() -> None:
    paths = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`", (ROOT / "docs" / "glossary.md").read_text()))
    assert len(paths) > 40
    assert sorted(path for path in paths if not (ROOT / "src" / "rillet" / path).is_file()) == []
