"""The guides: programs of docs/web.md and docs/xadd.md, messages of docs/problems.md, first lines, Chinese pages."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.protocol.command_parser import CommandParser
from tests.judge import running_redis
from tests.package.test_modes import ROOT

DOCS = ROOT / "docs"


def web_program(number: int) -> dict[str, Any]:
    """Run a program of docs/web.md, without a process for the store, and return its names."""
    program = re.findall(r"^```python\n(.*?)^```$", (DOCS / "web.md").read_text(), re.MULTILINE | re.DOTALL)[number]
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(program.replace(', owner="process"', ""), "web.md", "exec"), names)
    return names


def test_the_web_application_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    names = web_program(0)
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


def test_the_worker_of_the_web_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fastapi = pytest.importorskip("fastapi")
    monkeypatch.chdir(tmp_path)
    names = web_program(1)
    app = fastapi.FastAPI()
    handled = asyncio.Event()
    send_mail = names["send_mail"]

    async def observed(message: Any) -> None:
        await send_mail(message)
        handled.set()

    names["send_mail"] = observed

    async def main() -> None:
        async with names["lifespan"](app):
            await app.state.orders.add({"customer": "ada"})
            await handled.wait()

    asyncio.run(main())
    assert capsys.readouterr().out == "mail to ada\n"


def test_the_flask_application_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flask")
    monkeypatch.chdir(tmp_path)
    names = web_program(2)
    with names["store"]:
        client = names["app"].test_client()
        ids = [client.post("/orders", json={"n": str(n)}).json["id"] for n in range(2)]
        assert client.get("/events", headers={"Last-Event-ID": "$"}).status_code == 400
        answer = client.get("/events", headers={"Last-Event-ID": ids[0]})
        assert next(answer.response) == f'id: {ids[1]}\ndata: {{"n": "1"}}\n\n'.encode()
        answer.close()


def test_every_message_of_the_page_of_problems_is_one_of_rillet() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "rillet").rglob("*.py"))
    source = re.sub(r"\"\n\s+f?\"", "", source)  # a text on several lines
    messages = re.findall(r"^\| `(.*?)` \|", (DOCS / "problems.md").read_text(), re.MULTILINE)
    assert len(messages) > 20
    assert [one for one in messages if one not in source] == []


def test_every_guide_says_who_it_is_for_and_what_they_will_have() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1].split("  - Formats and design:", 1)[0]
    pages = re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)
    assert len(pages) > 40
    for page in pages:
        if page == "index.md":
            continue
        title, blank, *lines = (DOCS / page).read_text().split("\n")
        lead = " ".join(lines[: lines.index("")])
        assert title.startswith("# ")
        assert blank == ""
        assert re.fullmatch(r"\*For .+\. At its end you have\b.+\.\*", lead), page


def test_the_front_page_has_an_install_line_eight_lines_of_code_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install, program = (block[2] for block in blocks(DOCS / "index.md"))
    assert install.startswith("pip install ")
    assert len([line for line in program.splitlines() if line]) == 8
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "index.md", "exec"), {})
    assert capsys.readouterr().out == "bill 42 99.90\n"
    assert re.findall(r"!\[.+\]\((.+)\)", (DOCS / "index.md").read_text()) == [
        "images/system.svg", "images/inspector-stream.png",
    ]  # fmt: skip


def test_every_guide_is_in_the_navigation() -> None:
    pages = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} <= pages


CHINESE = sorted(path.name for path in (DOCS / "zh").glob("*.md"))
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return the indentation, the language and the text of each code block of a page."""
    return _FENCE.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", CHINESE)
def test_a_chinese_page_has_the_code_of_the_english_one(page: str) -> None:
    assert blocks(DOCS / "zh" / page) == blocks(DOCS / page)
    _, lead, *_ = (DOCS / "zh" / page).read_text(encoding="utf-8").split("\n\n")
    assert re.match(r"\*写给.+。读完本页，.+。\*\s", lead, re.DOTALL)
    assert f"[English](../{page})" in lead
    assert f"(zh/{page})" in (DOCS / page).read_text(encoding="utf-8")


def test_the_chinese_table_of_names_is_the_english_one() -> None:
    """Its Redis names are equal, and so are rillet's; the words between them are translated."""

    def names(page: str) -> list[list[str]]:
        lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
        return [re.findall("`[^`]+`†?", " | ".join(line.split(" | ")[:2])) for line in lines if line.startswith("| `")]

    assert len(names("redis-source.md")) > 400
    assert names("zh/redis-source.md") == names("redis-source.md")


@pytest.mark.parametrize("number", [0, 1], ids=["steps", "trim"])
def test_the_programs_about_xadd_print_what_the_page_shows(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Interpreted and compiled: the page says that both write these bytes."""
    code = blocks(DOCS / "xadd.md")
    program, output = code[2 * number], code[2 * number + 1]
    assert (program[1], output[1]) == ("python", "")
    exec(compile(program[2], "xadd.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == output[2]


def test_redis_logs_what_the_page_about_xadd_shows(tmp_path: Path) -> None:
    """The same commands, the same replies, nodes of the same bytes, and the same commands in the append-only file."""
    program, output = (text for _, _, text in blocks(DOCS / "xadd.md")[2:4])
    commands = [text.split() for text in re.findall(r'"(X[^"]+)"', program) if " s " in text]
    assert len(commands) == 8
    with (
        running_redis("--appendonly", "yes", "--stream-node-max-entries", "2", folder=tmp_path) as judge,
        rillet.open(stream_node_max_entries=2) as store,
    ):
        client = judge.client()
        for words in commands:
            assert client.execute_command(*words) == store.execute(*words)
        assert client.dump("s") == store.execute("DUMP", "s")
        client.execute_command("DEBUG", "LOADAOF")  # which writes the log first
        log = next(tmp_path.glob("appendonlydir/*.incr.aof")).read_bytes()
    parser = CommandParser()
    parser.feed(log)
    logged = [f"log: {' '.join(word.decode() for word in words)}" for words in iter(parser.next, None) if words]
    assert logged == [line for line in output.splitlines() if line.startswith("log: ")]


@pytest.mark.slow
def test_the_debugger_stops_inside_xadd(tmp_path: Path) -> None:
    """In the interpreted build: as the page says, with pdb in the main thread, and by `breakpoint` in a store's."""
    code = blocks(DOCS / "xadd.md")
    program, session = (textwrap.dedent(text) for _, _, text in code[4:6])
    (tmp_path / "stop.py").write_text(program)
    command, *lines = session.splitlines()
    assert command == "$ PYTHONPATH=src python -m pdb stop.py"
    typed = "".join(f"{line.removeprefix('(Pdb) ')}\n" for line in [*lines, "args", "continue", "where", "quit"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RILLET_NO_CYTHON": "1"}

    def run(*arguments: str, text: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, input=text, env=environment, stdout=subprocess.PIPE, text=True,
                              timeout=60, check=False).stdout  # fmt: skip

    shown = run("-m", "pdb", "stop.py", text=typed)
    assert "words = " in shown
    assert re.search(r"stream/add\.py\(\d+\)run\(\)", shown)
    assert re.search(r"stream/stream\.py\(\d+\)add\(\)", shown)

    inside = "import rillet.commands.stream.add as module, rillet\n"
    inside += "run = module.Xadd.run\n"
    inside += "def stop(self, session, words):\n    breakpoint()\n    return run(self, session, words)\n"
    inside += "module.Xadd.run = stop\nwith rillet.open() as store:\n    store.execute('XADD', 's', '1-0', 'a', '1')\n"
    shown = run("-c", inside, text="where\nargs\ncontinue\n")
    assert "engine_thread.py" in shown
    assert "words = " in shown
