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

import mkdocs_gen_files

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
CLASSES = (
    "rillet.store.store.Store", "rillet.store.stream.Stream", "rillet.store.entry.Entry",
    "rillet.store.group.Group", "rillet.store.group.Consumer", "rillet.store.group.MultiConsumer",
    "rillet.store.group.MessageReader", "rillet.store.handling.Handled", "rillet.store.consuming.delays.Exponential",
    "rillet.store.partitions.stream.PartitionedStream",
    "rillet.store.partitions.group", "rillet.store.message.Message", "rillet.store.info_records",
    "rillet.store.stats", "rillet.opentelemetry",
    "rillet.store.arguments.policies", "rillet.store.transaction",
    "rillet.store.keys.KeyCommands", "rillet.store.types.hash.Hash", "rillet.store.types.set.Set",
    "rillet.store.types.sorted_set.SortedSet", "rillet.store.types.list.List", "rillet.store.types.string.String",
    "rillet.store.types.array.Array", "rillet.store.types.bitmap.Bitmap",
    "rillet.store.types.string.Counter", "rillet.store.types.hyperloglog.HyperLogLog", "rillet.store.types.geo",
    "rillet.store.types.stored_key.StoredKey", "rillet.store.codecs",
    "rillet.store.channels.Subscription", "rillet.store.channels.ChannelMessage",
    "rillet.store.sharing.serving.StoreServer", "rillet.testing.clock.StoreClock", "rillet.testing.plugin",
    "rillet.types.stream.id.StreamID", "rillet.errors",
    "rillet.host.recovery",
    "rillet.store.arguments.positions", "rillet.store.aio.store.AsyncStore",
    "rillet.store.aio.runner.AsyncRunner", "rillet.store.aio.keys.AsyncKeyCommands",
    "rillet.store.aio.stream.AsyncStream", "rillet.store.aio.group.AsyncGroup", "rillet.store.aio.group.AsyncConsumer",
    "rillet.store.aio.group.AsyncMultiConsumer", "rillet.store.aio.group.AsyncMessageReader",
    "rillet.store.aio.message.AsyncMessage", "rillet.store.aio.hash.AsyncHash", "rillet.store.aio.set.AsyncSet",
    "rillet.store.aio.sorted_set.AsyncSortedSet", "rillet.store.aio.list.AsyncList",
    "rillet.store.aio.array.AsyncArray", "rillet.store.aio.bitmap.AsyncBitmap",
    "rillet.store.aio.string.AsyncString", "rillet.store.aio.string.AsyncCounter",
    "rillet.store.aio.hyperloglog.AsyncHyperLogLog", "rillet.store.aio.geo.AsyncGeo",
    "rillet.store.aio.stored_key.AsyncStoredKey", "rillet.store.aio.subscription.AsyncSubscription",
)  # fmt: skip


def write(path: str, text: str) -> None:
    """Write one page, with the file that makes it as its source."""
    with mkdocs_gen_files.open(path, "w") as page:
        page.write(text)
    mkdocs_gen_files.set_edit_path(path, EDIT)


OPENING = ("rillet.store.opening.open", "rillet.store.opening.connect", "rillet.store.follow.opening.follow")


def api_pages() -> dict[str, str]:
    """Return a page for each public class or module, and the page that lists them; mkdocstrings expands the marks."""
    parts = [
        "# Python API\n",
        "*For Python developers. At its end you have the page of each class: its methods, parameters and errors.*\n",
        "`rillet.open`, `rillet.connect` and `rillet.follow` return a store; its methods return the rest.\n",
        "| | |\n|---|---|",
    ]
    pages = {"open-connect-follow": "\n".join(["# open, connect, follow\n", *(f"::: {name}\n" for name in OPENING)])}
    parts.append("| [open, connect, follow](api/open-connect-follow.md) | How a store is opened. |")
    for name in CLASSES:
        title = name.rpartition(".")[2] if name.rpartition(".")[2][:1].isupper() else name
        pages[title] = f"# {title}\n\n::: {name}\n    options: {{ show_root_heading: false }}\n"
        about = (inspect.getdoc(resolve_name(name)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "&#124;")
        parts.append(f"| [{title}](api/{title}.md) | {about} |")
    return {"reference/api.md": "\n".join(parts) + "\n"} | {
        f"reference/api/{title}.md": text for title, text in pages.items()
    }


def commands_page() -> str:
    """Return the page of all commands, by group."""
    commands.load()
    parts = [
        "# Commands\n",
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
    parts = ["# Command line\n", "Generated from `--help`.\n"]
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
