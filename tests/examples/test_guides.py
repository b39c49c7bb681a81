"""The guides: the web application of docs/web.md, the messages of docs/problems.md, the first lines of all guides."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.package.test_modes import ROOT

DOCS = ROOT / "docs"


def test_the_web_application_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    program = re.findall(r"^```python\n(.*?)^```$", (DOCS / "web.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(program.replace(', owner="process"', ""), "web.md", "exec"), names)
    with TestClient(names["app"]) as client:
        ids = [client.post("/orders", json={"n": str(n)}).json()["id"] for n in range(3)]
        first = client.get("/orders", params={"count": 2}).json()
        assert first == {"orders": [{"id": ids[0], "n": "0"}, {"id": ids[1], "n": "1"}], "next": ids[1]}
        second = client.get("/orders", params={"after": first["next"]}).json()
        assert [one["n"] for one in second["orders"]] == ["2"]
        assert client.get("/orders", params={"after": ids[2]}).json() == {"orders": [], "next": ids[2]}
        for bad in ("$", "1-1-1", "x"):
            answer = client.get("/orders", params={"after": bad})
            assert answer.status_code == 400
            assert "not a stream ID" in answer.json()["detail"]
        assert client.get("/events", headers={"Last-Event-ID": "+"}).status_code == 400

    async def events() -> list[str]:
        async with names["lifespan"](names["app"]):
            lines = names["lines"](names["position"](ids[0]))
            found = [await anext(lines), await anext(lines)]
            await lines.aclose()
            return found

    parts = [event.split("\n") for event in asyncio.run(events())]
    assert [part[0] for part in parts] == [f"id: {ids[1]}", f"id: {ids[2]}"]
    assert [json.loads(part[1].removeprefix("data: ")) for part in parts] == [{"n": "1"}, {"n": "2"}]


def test_every_message_of_the_page_of_problems_is_one_of_rillet() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "rillet").rglob("*.py"))
    source = re.sub(r"\"\n\s+f?\"", "", source)  # a text on several lines
    messages = re.findall(r"^\| `(.*?)` \|", (DOCS / "problems.md").read_text(), re.MULTILINE)
    assert len(messages) > 20
    assert [one for one in messages if one not in source] == []


def test_every_guide_says_who_it_is_for_and_what_they_will_have() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1].split("  - Reference:", 1)[0]
    pages = re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)
    assert len(pages) > 30
    for page in pages:
        if page == "index.md":
            continue
        title, blank, *lines = (DOCS / page).read_text().split("\n")
        lead = " ".join(lines[: lines.index("")])
        assert title.startswith("# ")
        assert blank == ""
        assert re.fullmatch(r"\*For .+\. At its end you have .+\.\*", lead), page


def test_every_guide_is_in_the_navigation() -> None:
    pages = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} <= pages
