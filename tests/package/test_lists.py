"""The lists in the documents that the code could contradict: extras, packages, layers, subcommands, measured rows."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tomllib

from benchmarks.table import BEGIN, END, HEADLINES
from rillet import commands
from rillet.cli import SUBCOMMANDS
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.registry import TABLE
from rillet.runtime.settings.settings import PARAMETERS, Settings
from tests.package.test_modes import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def groups() -> dict[str, list[str]]:
    """Return the requirements of each group for development."""
    declared = PROJECT["dependency-groups"]
    return {name: [line for line in lines if isinstance(line, str)] for name, lines in declared.items()}


def packages(lines: list[str]) -> set[str]:
    """Return the names of the packages in requirements, without rillet's own extras."""
    return {re.split(r"[^\w.-]", line)[0] for line in lines} - {"rillet"}


def everything(extra: str) -> set[str]:
    """Return the packages of an extra and of those that it includes."""
    included = [name for line in EXTRAS[extra] if line.startswith("rillet[") for name in line[7:-1].split(",")]
    return packages(EXTRAS[extra]).union(*map(everything, included))


def test_the_guide_lists_every_extra() -> None:
    listed = re.findall(r"^\| (`rillet\[.*?) \|", page("docs/install.md"), re.MULTILINE)
    assert sorted(re.findall(r"`rillet\[(\w+)\]`", " ".join(listed))) == sorted(EXTRAS)


def test_the_extra_all_installs_every_extra() -> None:
    assert everything("all") == set().union(*map(everything, EXTRAS))


def test_every_package_has_a_reason() -> None:
    note = page("docs/design/0002-dependencies.md")
    extras, _, development = note.partition("## Development")
    assert packages(PROJECT["project"]["dependencies"]) == {"lupa", "xxhash"}
    for name, lines in (EXTRAS | groups()).items():
        part = development + page("docs/frameworks.md") if name in groups() else extras
        assert f"`{name}`" in part, name
        words = set(re.findall(r"[\w-]+", part.lower()))
        assert sorted(packages(lines) - words) == [], name


def test_every_package_of_the_note_is_required() -> None:
    note = page("docs/design/0002-dependencies.md")
    required = set().union(*map(packages, (EXTRAS | groups()).values()))
    rows = [line.split(" | ") for line in note.splitlines() if line.startswith("| ") and "---" not in line]
    named = {word for row in rows[1:] if row[0] != "| group" for word in re.findall(r"[\w-]+(?= >= )", row[1])}
    assert len(named) > 15
    assert named <= required


def test_the_overview_shows_every_folder_and_subcommand() -> None:
    layout = page("docs/design/overview.md").split("src/rillet/\n", 1)[1].split("```", 1)[0]
    folders = {path.parent.name for path in (ROOT / "src" / "rillet").glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", layout, re.MULTILINE)) == folders
    line = layout.split("  cli/ ", 1)[1]
    assert set(re.findall(r"[\w-]+", line)) - {"rillet"} == set(SUBCOMMANDS)


def test_the_overview_has_the_layers_that_lint_checks() -> None:
    contract = next(one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    layers = [" : ".join(sorted(line.split(" : "))) for line in reversed(contract["layers"])]
    drawn = re.search(r"^`(errors .* < cli)`$", page("docs/design/overview.md"), re.MULTILINE)
    assert drawn is not None
    assert [" : ".join(sorted(part.split(" : "))) for part in drawn[1].split(" < ")] == layers


def test_unknown_commands_are_unknown() -> None:
    commands.load()
    rows = re.findall(r"^\| (.*) \| unknown command", page("docs/not-included.md"), re.MULTILINE)
    names = {name.lower() for row in rows for name in re.findall(r"\b[A-Z]{3,}\b", row)}
    assert {"blmovem", "vadd"} <= names
    assert names & {command.fullname for command in TABLE} == set()


def test_the_readme_has_ten_of_the_measured_rows() -> None:
    tables = {path: page(path).split(BEGIN, 1)[1].split(END, 1)[0] for path in ("README.md", "docs/measured.md")}
    short, full = ([line.split(" | ") for line in table.splitlines() if "**" in line] for table in tables.values())
    assert [(row[0][2:], row[1]) for row in short] == list(HEADLINES)
    assert len(short) == 10
    known = {(row[0], row[1]): row[2:5] for row in full}
    assert [[*row[2:4], row[4].removesuffix(" |")] for row in short] == [known[row[0], row[1]] for row in short]


@pytest.mark.parametrize(("guide", "least"), [("server", 70), ("security", 9), ("scripts", 2)])
def test_guides_have_the_defaults_of_the_settings(guide: str, least: int) -> None:
    rows = [row for table in tables(f"docs/{guide}.md", "| setting | default | |") for row in table]
    settings = Settings()
    compared = 0
    for names, defaults in ((re.findall(r"`([\w-]+)`", row[0]), row[1].split(", ")) for row in rows):
        assert set(names) - {"loadmodule"} <= PARAMETERS.keys(), names
        for name, default in zip(names, defaults * len(names) if len(defaults) == 1 else defaults, strict=False):
            if name not in IN_WORDS:
                shown = PARAMETERS[name].show(getattr(settings, PARAMETERS[name].attribute))
                assert plain(default) == shown, name
                compared += 1
    assert compared >= least


def tables(path: str, header: str) -> list[list[list[str]]]:
    """Return the rows of each table of a page with this header."""
    found = page(path).split(header + "\n", 1)[1].split(header + "\n")
    lines = [text.split("\n\n", 1)[0].splitlines()[1:] for text in found]
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])] for line in table] for table in lines]


# No setting; the server's own; in words.
IN_WORDS = ("loadmodule", "save", "client-output-buffer-limit", "tls-protocols", "tls-dh-params-file", "tls-ciphers",
            "tls-ciphersuites", "tls-prefer-server-ciphers")  # fmt: skip


def plain(default: str) -> str:
    """Return a default of a guide as CONFIG GET shows it."""
    text = default.strip("` ")
    if match := re.fullmatch(r"(\d+)(kb|mb|gb)", text):
        return str(int(match[1]) << {"kb": 10, "mb": 20, "gb": 30}[match[2]])
    if match := re.fullmatch(r"(\d+) MB", text):
        return str(int(match[1]) << 20)
    return "" if text in ("none", "standard output") else text


def test_the_guide_lists_every_metric() -> None:
    source = page("src/rillet/server/metrics.py")
    kinds = dict(re.findall(r'"([a-z_]+)",\s*"(gauge|counter|info)"', source))
    table = page("docs/operations.md").split("## Prometheus\n", 1)[1].split("\n\n| ", 1)[1].split("\n\n", 1)[0]
    listed = {name for line in table.splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])}
    assert len(kinds) > 60
    assert listed == {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}


def test_the_guide_has_the_labels_of_the_metrics() -> None:
    source = page("src/rillet/server/metrics.py")
    metric = r'Metric\(\s*"([a-z_]+)",\s*"\w+",\s*"[^"]+",\s*(label|of_group|\([^()]+\))\s*\)'
    declared = {}
    for function in source.split("\n\n\n"):
        own = re.search(r"label = (\([^()]+\))", function)
        of_name = {"label": own[1] if own else '("db", "stream")', "of_group": '("db", "stream", "group")'}
        for name, labels in re.findall(metric, function):
            declared[name] = re.findall(r'"(\w+)"', of_name.get(labels, labels))
    rows = [row for table in tables("docs/operations.md", "| metric, each with the prefix `rillet_` | labels | |")
            for row in table]  # fmt: skip
    compared = 0
    for names, labels, *_ in rows:
        for name in re.findall(r"`([a-z_]+)`", names):
            known = declared.get(name.removesuffix("_total"), declared.get(name))
            if known is not None:
                assert re.findall(r"`(\w+)`", labels) == known, name
                compared += 1
    assert compared > 25
    assert len(declared) == compared


def test_the_guide_has_fields_of_info() -> None:
    engine = Engine(Settings(compat="newest"))
    info = ask(engine, b"INFO", b"everything").decode()
    fields = {line.split(":")[0] for line in info.splitlines()}
    rows = [row for table in tables("docs/operations.md", "| in INFO | |") for row in table]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row[0])}
    assert len(named) > 8
    assert named <= fields


def test_rules_of_users_in_the_guide_are_accepted() -> None:
    engine = Engine(Settings(compat="valkey"))
    rows = [row for table in tables("docs/security.md", "| rule | meaning |") for row in table]
    rules = [rule.replace("\\|", "|") for row in rows for rule in re.findall(r"`([^`]+)`", row[0])]
    assert len(rules) > 25
    for rule in rules:
        before = {"<password": b">password", "!hash": b"#" + 64 * b"0"}.get(rule, b"reset")
        word = rule.replace("hash", 64 * "0").encode()
        assert ask(engine, b"ACL", b"SETUSER", b"alice", before, word) == b"OK", rule


def test_scripts_have_the_names_in_the_guide() -> None:
    engine = Engine(Settings(compat="valkey", lua_enable_deprecated_api=True))
    rows = [row for table in tables("docs/scripts.md", "| name | |") for row in table]
    names = [name.split("(")[0] for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    names = [name.replace("LOG_...", "LOG_WARNING").replace("REPL_...", "REPL_ALL") for name in names]
    assert len(names) > 20
    for name in names:
        assert ask(engine, b"EVAL", b"return type(" + name.encode() + b")", b"0") != b"nil", name


def ask(engine: Engine, *argv: bytes) -> Any:
    """Return the reply to a command."""
    session = engine.session()
    engine.execute(session, list(argv))
    return parse_all(session.out.take_bytes())[0]
