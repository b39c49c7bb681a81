"""The lists in the documents that the code could contradict: extras, packages, layers, subcommands, measured rows."""

from __future__ import annotations

import re
from typing import Any

import tomllib

from benchmarks.table import BEGIN, END, HEADLINES
from rillet import commands
from rillet.cli import SUBCOMMANDS
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


def test_the_guide_to_the_server_has_the_defaults_of_the_settings() -> None:
    table = page("docs/server.md").split("| setting | default | |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()]
    settings = Settings()
    compared = 0
    for names, defaults in ((re.findall(r"`([\w-]+)`", row[0]), row[1].split(", ")) for row in rows):
        assert set(names) - {"loadmodule"} <= PARAMETERS.keys(), names
        for name, default in zip(names, defaults * len(names) if len(defaults) == 1 else defaults, strict=False):
            if name not in (
                "loadmodule",
                "save",
                "client-output-buffer-limit",
            ):  # no setting; the server's own; in words
                shown = PARAMETERS[name].show(getattr(settings, PARAMETERS[name].attribute))
                assert plain(default) == shown, name
                compared += 1
    assert compared > 70


def plain(default: str) -> str:
    """Return a default of a guide as CONFIG GET shows it."""
    text = default.strip("` ")
    if match := re.fullmatch(r"(\d+)(kb|mb|gb)", text):
        return str(int(match[1]) << {"kb": 10, "mb": 20, "gb": 30}[match[2]])
    return "" if text in ("none", "standard output") else text


def test_the_guide_lists_every_metric() -> None:
    source = page("src/rillet/server/metrics.py")
    kinds = dict(re.findall(r'"([a-z_]+)",\s*"(gauge|counter|info)"', source))
    table = page("docs/operations.md").split("## Prometheus\n", 1)[1].split("\n\n| ", 1)[1].split("\n\n", 1)[0]
    listed = {name for line in table.splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])}
    assert len(kinds) > 60
    assert listed == {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}
