"""Settings from a redis.conf and the command line, with redis-server's grammar.

    rillet serve redis.conf --port 7000 --appendonly yes
    rillet serve --save 60 1 --save 300 100 "--dbfilename my.rdb"
    rillet serve - < redis.conf

A file has one directive per line: a name and its arguments, split with the quoting rules of redis-cli; a line that
begins with `#` is a comment. `include` reads another file, or all files that match a pattern. Later directives override
earlier ones: first the file, then the standard input (`-`), then the command line. There, an option is a directive
whose arguments need no further quoting (`--save ""`, `"--port 7000"`); a value may begin with `--` if the option
requires one (server.c: main).

`save` accumulates: the first one replaces the default save points, further ones are added, and `save ""` removes all
(config.c: setConfigSaveOption).

`loadmodule` names a module and its arguments; it may occur several times. A directive whose name contains a dot is a
setting of a module (`bloom.error-rate 0.01`). The server loads the modules before the data, and rejects settings that
belong to none of them.

A directive that rillet does not know, or a value that it cannot honour, is an error with its name and line. Exceptions
are a few directives that Redis ignores, too (IGNORED); CONFIG REWRITE leaves them in the file
(rillet.server.config_rewrite).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import BinaryIO

from rillet.errors import StoreError
from rillet.protocol.command_parser import split_args
from rillet.runtime.settings.setting_types import SettingError, SettingType, quoted
from rillet.runtime.settings.settings import DEFAULT_SAVE, PARAMETERS, Settings

# Directives that are accepted without effect: those that Redis itself ignores (config.c: deprecated_configs), and those
# of features that rillet does not have yet.
IGNORED = frozenset(
    "list-max-ziplist-entries list-max-ziplist-value lua-replicate-commands "
    "busy-reply-threshold lua-time-limit tracking-table-max-keys".split()
)
_MOST_INCLUDES = 16


class ConfigurationError(StoreError):
    """An invalid directive; the message contains its file and line (or option) and the reason."""


@dataclass(frozen=True)
class UserLine:
    """The name and the rules of a `user` line, and the line for error messages."""

    name: bytes
    rules: tuple[bytes, ...]
    place: str


@dataclass
class Configuration:
    """The settings of a server, the file that CONFIG REWRITE writes, and the names of the settings that were given.

    without_effect: the given directives that change nothing in rillet, for a line in the server's log.
    modules: the modules to load, each with its arguments; module_settings: the values of their settings by full name.
    users: the `user` lines.
    renamed: the commands to rename: old name, new name ("" removes the command), and the line for error messages.
    """

    settings: Settings
    file: Path | None = None
    given: frozenset[str] = frozenset()
    without_effect: tuple[str, ...] = ()
    modules: tuple[tuple[str, ...], ...] = ()
    module_settings: dict[str, str] = field(default_factory=dict)
    renamed: tuple[tuple[str, str, str], ...] = ()
    users: tuple[UserLine, ...] = ()


def load(arguments: Sequence[str], stdin: BinaryIO | None = None) -> Configuration:
    """Return the settings that the command line `[file] [-] [--name value ...]` defines.

    The option --compat is in force for the file, too, because it selects the valid values of other directives.
    """
    rest = list(arguments)
    file = Path(rest.pop(0)) if rest and not rest[0].startswith("-") else None
    reader = _DirectiveReader(Settings(save=DEFAULT_SAVE))
    reads_input = bool(rest) and "-" in (rest[0], rest[-1])
    if reads_input:
        rest.remove("-") if rest[0] == "-" else rest.pop()
    options = list(_options(rest))
    for where, line in options:
        if line.lower().startswith(b"compat "):
            reader.apply(line, where)
    if file is not None:
        reader.read_file(file)
    if reads_input:
        reader.read_lines((stdin or sys.stdin.buffer).read(), "standard input")
    for where, line in options:
        reader.apply(line, where)
    reader.finish()
    return Configuration(reader.settings, None if file is None else file.absolute(), frozenset(reader.given),
                         tuple(reader.without_effect), tuple(reader.modules), reader.module_settings,
                         tuple(reader.renamed), tuple(reader.users))  # fmt: skip


def _options(rest: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name for error messages, line of a configuration file) for each option (server.c: main)."""
    where, line, complete = "", "", True
    for at, word in enumerate(rest):
        if complete and word.startswith("--"):
            if line:
                yield where, _encoded(line)
            where, line = f"option {word}", word[2:] + " "
            complete = len(split_args(_encoded(word)) or [""]) > 1
            if word.lower() == "--save" and (at + 1 == len(rest) or rest[at + 1].startswith("--")):
                line, complete = line + '""', True  # an empty list of save points
        elif not line and word.startswith("-"):
            raise ConfigurationError(f"{word!r} is neither a configuration file nor an option (--name value)")
        else:
            where = where or f"option {word}"
            line, complete = line + quoted(word) + " ", True
    if line:
        yield where, _encoded(line)


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape")


class _DirectiveReader:
    """Applies the directives of redis.conf and of the command line to the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.given: set[str] = set()
        self.without_effect: dict[str, None] = {}
        self.modules: list[tuple[str, ...]] = []
        self.module_settings: dict[str, str] = {}
        self.renamed: list[tuple[str, str, str]] = []
        self._saved = False
        self.users: list[UserLine] = []

    def read_file(self, path: Path, depth: int = 0) -> None:
        """Apply the directives of a configuration file."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror}") from error
        self.read_lines(data, str(path), depth)

    def read_lines(self, data: bytes, name: str, depth: int = 0) -> None:
        """Apply the directives of a text, one per line."""
        for number, line in enumerate(data.split(b"\n"), 1):
            self.apply(line, f"{name}, line {number}", depth)

    def apply(self, raw: bytes, where: str, depth: int = 0) -> None:
        """Apply one line; comments and empty lines have no effect (loadServerConfigFromString)."""
        line = raw.strip(b" \t\r\n")
        if not line or line.startswith(b"#"):
            return
        place = f"{where}: '{line.decode('utf-8', 'replace')}'"
        words = split_args(line)
        if words is None:
            raise ConfigurationError(f"{place}: Unbalanced quotes in configuration line")
        texts = [word.decode("utf-8", "surrogateescape") for word in words]
        name = texts[0].lower() if texts else ""
        if name == "include" and len(texts) == 2 and depth < _MOST_INCLUDES:
            self._include(texts[1], depth + 1)
        elif name == "loadmodule" and len(texts) >= 2:
            self.modules.append(tuple(texts[1:]))
        elif "." in name and len(texts) >= 2:
            self.module_settings[texts[0]] = " ".join(texts[1:])
        elif name == "user":
            if len(words) < 2:
                raise ConfigurationError(f"{place}: wrong number of arguments")
            self.users.append(UserLine(words[1], tuple(words[2:]), place))
        elif name == "rename-command" and len(texts) == 3:
            self.renamed.append((texts[1], texts[2], place))
        elif name in PARAMETERS:
            try:
                self._set(PARAMETERS[name], texts[1:])
            except SettingError as error:
                raise ConfigurationError(f"{place}: {str(error).removeprefix('ERR ')}") from None
        elif name and name not in IGNORED:
            raise ConfigurationError(f"{place}: unknown directive {texts[0]!r}")
        elif name:
            self.without_effect[name] = None

    def _include(self, pattern: str, depth: int) -> None:
        """Apply an included file, or all files that match the pattern, possibly none."""
        if any(mark in pattern for mark in "*?["):
            for path in sorted(glob(pattern)):
                self.read_file(Path(path), depth)
        else:
            self.read_file(Path(pattern), depth)

    def _set(self, parameter: SettingType, texts: list[str]) -> None:
        if not parameter.multi and len(texts) != 1:
            raise SettingError("wrong number of arguments")
        if parameter.multi and len(texts) == 1 and texts[0]:
            split = split_args(_encoded(texts[0])) or []
            texts = [word.decode("utf-8", "surrogateescape") for word in split]
        value = self.settings.value_of_words(parameter, texts)
        if parameter.name == "save":
            if self._saved and texts != [""]:
                value = (*self.settings.save, *value)
            self._saved = True
        setattr(self.settings, parameter.attribute, value)
        self.given.add(parameter.alias or parameter.name)

    def finish(self) -> None:
        """Choose the defaults of the server that `compat` names, for the settings that were not given."""
        for parameter in PARAMETERS.values():
            if parameter.valkey_default is not None and not parameter.alias and parameter.name not in self.given:
                setattr(self.settings, parameter.attribute, parameter.default_in(self.settings.compat))
