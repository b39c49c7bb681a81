"""The switch of tools/published.py: one value decides which texts say `pip install rillet` and name the site."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.package.test_docs import PAGES
from tests.package.test_modes import ROOT
from tools.published import PUBLISHED, REPOSITORY, SITE, SOURCE, TEXTS, rewritten

FILES = [*PAGES, *(ROOT / name for name in ("pyproject.toml", "mkdocs.yml", "setup.py")),
         *sorted((ROOT / "src").rglob("*.py"))]  # fmt: skip
ONLY_THEN = re.compile(rf"pip install (?:-\S+ )*rillet(?![\w\[])|{re.escape(SITE)}")
ONLY_UNTIL = re.compile(rf"{re.escape(SOURCE)}|not on the package index yet|the site does not exist yet")


def contents(published: bool) -> dict[str, str]:
    """Return the texts of every file, as they are in a state of the switch."""
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
    return {path: rewritten(path, content, published) for path, content in found.items()}


def test_the_files_are_in_the_state_of_the_switch() -> None:
    now = {path: (ROOT / path).read_text(encoding="utf-8") for path in contents(PUBLISHED)}
    assert contents(PUBLISHED) == now, "run: python -m tools.published"


@pytest.mark.parametrize("published", [False, True])
def test_each_state_is_whole(published: bool) -> None:
    other = ONLY_UNTIL if published else ONLY_THEN
    found = contents(published)
    assert {path: other.findall(content) for path, content in found.items() if other.search(content)} == {}
    for text in TEXTS:
        assert found[text.path].count(text.then if published else text.until) == 1, text


def test_the_switch_can_be_turned_back() -> None:
    there = contents(True)
    assert there != contents(False)
    assert {path: rewritten(path, content, False) for path, content in there.items()} == contents(False)


def test_the_description_on_the_index_has_absolute_links_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = runpy.run_path("setup.py")["description"]()
    links = re.findall(r"""(?:\]\(|src=")([^)#"]+)""", text)
    here = re.compile(rf"{REPOSITORY}/(?:blob|raw)/main/(.+)")
    files = [found[1] for found in map(here.fullmatch, links) if found]
    assert [link for link in links if not link.startswith("https://")] == []
    assert len(files) > 20
    assert [name for name in files if not (ROOT / name).exists()] == []
