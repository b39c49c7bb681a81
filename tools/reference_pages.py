"""Write the reference pages of the documentation site from the code: the Python API, commands, settings, options, CLI.

mkdocs-gen-files runs this file during `make docs`; the pages exist in the built site only. Each page is made from the
declaration that the program itself uses, so a page cannot differ from the program.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from collections.abc import Iterator
from pkgutil import resolve_name
from types import ModuleType

import mkdocs_gen_files

import rillet
import rillet.aio
import rillet.records
from rillet import commands
from rillet.cli import SUBCOMMANDS, main
from rillet.runtime.command_syntax import Argument, parse, without_versions
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.settings.settings import PARAMETERS, Settings
from rillet.spark.options import TABLE as OPTIONS
from rillet.spark.options import Option, Options
from rillet.spark.table_options import TABLE as TABLE_OPTIONS
from rillet.spark.table_options import TableOptions
from rillet.types.compat import COMPATS, level_of

EDIT = "tools/reference_pages.py"
GROUPS = {
    "stream": "Streams", "string": "Strings", "bitmap": "Bitmaps", "hyperloglog": "HyperLogLog", "list": "Lists",
    "set": "Sets", "sorted-set": "Sorted sets", "geo": "Places",
    "hash": "Hashes", "array": "Arrays", "generic": "Keys", "pubsub": "Channels", "transactions": "Transactions",
    "connection": "Connection", "scripting": "Scripting", "server": "Server",
}  # fmt: skip
OTHERS = {
    "rillet.errors": ("rillet.errors",),
    "rillet.codecs": ("rillet.store.codecs",),
    "rillet.testing": ("rillet.testing.clock.StoreClock", "rillet.testing.plugin"),
    "rillet.opentelemetry": ("rillet.opentelemetry",),
}
"""Pages of several names."""
PROSE = {"IDs and times": "rillet.store.arguments.positions", "Policies": "rillet.store.arguments.policies"}
"""Pages about arguments: the docstring of a module."""


def write(path: str, text: str) -> None:
    """Write one page, with the file that makes it as its source."""
    with mkdocs_gen_files.open(path, "w") as page:
        page.write(text)
    mkdocs_gen_files.set_edit_path(path, EDIT)


OPENING = ("rillet.store.opening.open", "rillet.store.opening.connect", "rillet.store.follow.opening.follow")


def api_pages() -> dict[str, str]:
    """Return a page for each public class, and the page that lists them; mkdocstrings expands the marks."""
    parts = [
        "# Python API\n",
        "*For Python developers. At its end you have the page of each class: its methods, parameters and errors.*\n",
        "`rillet.open`, `rillet.connect` and `rillet.follow` return a store; its methods return the rest."
        " [Stability](../stability.md#what-is-public) says which names are public.\n",
    ]
    pages = {"open-connect-follow": "\n".join(["# open, connect, follow\n", *(f"::: {name}\n" for name in OPENING)])}

    def table(title: str, rows: dict[str, object]) -> None:
        parts.extend([f"## {title}\n", "| | |\n|---|---|"])
        parts.extend(f"| [{name}](api/{name.replace(' ', '-')}.md) | {_first(about)} |" for name, about in rows.items())
        parts.append("")

    def classes(module: ModuleType) -> dict[str, object]:
        found = {name: getattr(module, name) for name in module.__all__}
        return {name: one for name, one in sorted(found.items())
                if isinstance(one, type) and not issubclass(one, Exception)}  # fmt: skip

    for name, one in {**classes(rillet), **classes(rillet.aio)}.items():
        pages[name] = (
            f"# {name}\n\n::: {_path(one)}\n    options:"
            " { show_root_heading: false, inherited_members: true, show_bases: false }\n"
        )
    records = classes(rillet.records)
    pages["rillet.records"] = "\n".join(["# rillet.records\n", *(f"::: {_path(one)}\n" for one in records.values())])
    for title, names in OTHERS.items():
        pages[title] = "\n".join([f"# {title}\n", *(f"::: {name}\n" for name in names)])
    for title, name in PROSE.items():
        pages[title] = f"# {title}\n\n```\n{inspect.getdoc(resolve_name(name))}\n```\n"
    table("Classes", {"open-connect-follow": "How a store is opened.", **classes(rillet)})
    table("Results, errors, arguments", {
        "rillet.records": rillet.records, **{title: resolve_name(names[0]) for title, names in OTHERS.items()},
        **{title: resolve_name(name) for title, name in PROSE.items()},
    })  # fmt: skip
    table("asyncio", classes(rillet.aio))
    return {"reference/api.md": "\n".join(parts) + "\n"} | {
        f"reference/api/{title.replace(' ', '-')}.md": text for title, text in pages.items()
    }


def _path(one: object) -> str:
    return f"{one.__module__}.{one.__qualname__}"  # type: ignore[attr-defined]


def _first(about: object) -> str:
    """Return the first paragraph of a docstring, as the cell of a table."""
    text = about if isinstance(about, str) else inspect.getdoc(about) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "&#124;")


def commands_page() -> str:
    """Return the page of all commands, by group."""
    commands.load()
    parts = [
        "# Commands\n",
        "*For developers and operators. At its end you have arguments, cost and version of each command.*\n",
        "Generated from the command table. *Since* is the Redis version that introduced a command or an option. The"
        " setting [`compat`](../compatibility.md) selects the server whose behavior rillet shows: a command or an"
        " option exists only if the selected server has it.\n",
    ]
    by_group: dict[str, list[Command]] = {}
    for command in TABLE:
        by_group.setdefault(command.group, []).extend(_entries(command))
    for group, title in GROUPS.items():
        parts.append(f"## {title}\n")
        for command in sorted(by_group.get(group, ()), key=lambda entry: entry.fullname):
            parts.append(_command(command))
    return "\n".join(parts)


def _entries(command: Command) -> list[Command]:
    """Return the command, or its sub-commands if it is a container."""
    return list(command.subcommands.values()) if command.subcommands else [command]


def _command(command: Command) -> str:
    name = command.fullname.replace("|", " ").upper()
    known = [compat.name for compat in COMPATS.values() if command.known_to(compat)]
    where = "every `compat`" if len(known) == len(COMPATS) else ", ".join(f"`{compat}`" for compat in known)
    valkey = f"Valkey {command.valkey}" if command.valkey else ""
    since = valkey if command.since == command.valkey else f"{command.since}, {valkey}".removesuffix(", ")
    rows = [f"| since | {since} |", f"| complexity | {command.complexity} |", f"| available with | {where} |"]
    for token, since in _newer(parse(command.syntax), command.level):
        rows.append(f"| `{token}` | since {since} |")
    table = "\n".join(["| | |", "|---|---|", *rows])
    call = f"{name} {without_versions(command.syntax)}".rstrip()
    return f"### {name}\n\n```\n{call}\n```\n\n{command.summary}\n\n{table}\n"


def _newer(arguments: list[Argument], level: int) -> Iterator[tuple[str, str]]:
    """Yield the options that are newer than their command, with the version that introduced them."""
    for argument in arguments:
        if argument.since and level_of(argument.since) > level:
            yield argument.token or argument.name.upper(), argument.since
        yield from _newer(argument.arguments, level)


def settings_page() -> str:
    """Return the page of the settings."""
    settings = Settings()
    rows = []
    for name, setting in sorted(PARAMETERS.items()):
        if setting.hidden or setting.alias:
            continue
        shown = setting.show(getattr(settings, setting.attribute)).replace("|", "\\|")
        changes = "at the start only" if not setting.mutable else "protected" if setting.protected else "CONFIG SET"
        rows.append(f"| `{name}` | {f'`{shown}`' if shown else 'empty'} | {setting.about} | {changes} |")
    return "\n".join(
        [
            "# Settings\n",
            "*For operators and developers. At its end you have each setting and its default.*\n",
            "Generated from the declarations. A setting is a directive in redis.conf, an option of `rillet serve`"
            " (`--name value`), an argument of `rillet.open(name_with_underscores=value)` and a parameter of CONFIG"
            " GET. [The server guide](../server.md#settings) explains the most important ones.\n",
            "| setting | default | meaning | changed by |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def options_page() -> str:
    """Return the page of the Spark connector's options."""
    head = ["| option | used by | default |", "|---|---|---|"]
    return "\n".join(
        [
            "# Spark options\n",
            "*For data engineers. At its end you have each option of the connector, and its default.*\n",
            "Generated from the connector's tables of options.\n",
            "## Streams\n",
            "[The Spark guide](../spark.md#options) explains them.\n",
            *head,
            *_option_rows(OPTIONS, Options()),
            "",
            "## Hashes and other types\n",
            "[The guide to tables](../spark-tables.md#options) explains them.\n",
            *head,
            *_option_rows(TABLE_OPTIONS, TableOptions()),
            "",
        ]
    )


def _option_rows(options: tuple[Option, ...], defaults: object) -> Iterator[str]:
    for option in options:
        default = getattr(defaults, option.attribute, None)
        shown = "" if default in (None, "", False) and not isinstance(default, bool) else f"`{default}`"
        yield f"| `{option.name}` | {option.use} | {shown} |"


def cli_page() -> str:
    """Return the page of the command line: `--help` of each subcommand."""
    os.environ["COLUMNS"] = "100"
    parts = [
        "# Command line\n",
        "*For operators and developers. At its end you have the arguments of each command.*\n",
        "Generated from `--help`.\n",
    ]
    for arguments in (["--help"], *([name, "--help"] for name in SUBCOMMANDS)):
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main(arguments)
        parts.append(f"## rillet {' '.join(arguments[:-1])}".rstrip() + f"\n\n```\n{text.getvalue().rstrip()}\n```\n")
    return "\n".join(parts)


for path, text in api_pages().items():
    write(path, text)
write("reference/commands.md", commands_page())
write("reference/settings.md", settings_page())
write("reference/spark-options.md", options_page())
write("reference/cli.md", cli_page())
