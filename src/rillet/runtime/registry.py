"""The command table: every command is declared once, beside its handler, and its module is imported when it is used.

    @command("xlen", arity=2, flags="readonly fast", keys=(1, 1, 1), group="stream", since="5.0.0",
             complexity="O(1)", syntax="key")
    def xlen(session: Session, argv: list[bytes]) -> None:
        \"\"\"Returns the number of entries in a stream.\"\"\"

The declaration is the only source for the arity check, key extraction, COMMAND INFO and DOCS, ACL categories, the
reference pages and the fuzz grammar. The decorator only records it: nothing wraps the handler at call time. An
inconsistent declaration fails at import.

A subcommand is declared as "xgroup|create"; its first subcommand creates the container "xgroup". The arity includes the
names of the command and the subcommand; a negative arity is a minimum. The flag not_key marks `keys` as names that
are not keys, such as channels: a cluster routes the command by them, and nothing else reads them.

`since` is the version of Redis that introduced the command. Valkey has the commands of Redis 7.2, and those with
`valkey`, its own version. If `since` is "", Redis lacks the command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rillet._cython import cython, public, readonly
from rillet.runtime.implementation import on_list
from rillet.types.compat import NEVER, Compat, level_of

if TYPE_CHECKING:
    from rillet.runtime.implementation import Implementation

FLAGS = frozenset(
    "write readonly denyoom admin pubsub noscript blocking loading stale skip_monitor skip_slowlog asking fast "
    "no_auth may_replicate allow_busy no_multi movablekeys no_async_loading no_mandatory_keys "
    "protected touches_arbitrary_keys not_key".split()
)
GROUPS = frozenset(
    "generic string bitmap hyperloglog geo list set sorted-set hash array stream connection server transactions pubsub "
    "scripting module cluster".split()
)

# The traits of a command that decide about its admission (runtime/admission.py), as flags of one integer.
WRITES, NEEDS_MEMORY, SUBSCRIBES, LOADS, WHILE_BUSY, NO_AUTH, NO_MULTI = 1, 2, 4, 8, 32, 64, 128
USES_KEYSPACE, AT_ONCE, WHILE_SUBSCRIBED, IS_PING, IS_EXEC, ENDS_MULTI, MUTES = 256, 512, 1024, 2048, 4096, 8192, 16384
ARITY_GREW, NO_SCRIPT, MAY_REPLICATE = 32768, 65536, 131072
# What MONITOR and the slow log show: not the command; a script, before its commands; not some of its arguments.
HIDDEN, UNLOGGED, RUNS_SCRIPT, HAS_SECRETS = 1 << 18, 1 << 19, 1 << 20, 1 << 21
_TRAITS_OF_FLAGS = {
    "write": WRITES | USES_KEYSPACE, "readonly": USES_KEYSPACE, "may_replicate": USES_KEYSPACE | MAY_REPLICATE,
    "noscript": NO_SCRIPT,
    "denyoom": NEEDS_MEMORY, "loading": LOADS, "allow_busy": WHILE_BUSY, "no_auth": NO_AUTH,
    "no_multi": NO_MULTI, "admin": HIDDEN, "skip_monitor": HIDDEN, "skip_slowlog": UNLOGGED,
}  # fmt: skip
_TRAITS_OF_NAMES = {
    "ping": IS_PING | WHILE_SUBSCRIBED, "exec": IS_EXEC | AT_ONCE, "multi": AT_ONCE, "watch": AT_ONCE,
    "discard": AT_ONCE | ENDS_MULTI, "quit": AT_ONCE | ENDS_MULTI | WHILE_SUBSCRIBED,
    "reset": AT_ONCE | ENDS_MULTI | WHILE_SUBSCRIBED,
    "unsubscribe": WHILE_SUBSCRIBED, "sunsubscribe": WHILE_SUBSCRIBED, "punsubscribe": WHILE_SUBSCRIBED,
    "subscribe": SUBSCRIBES | WHILE_SUBSCRIBED, "ssubscribe": SUBSCRIBES | WHILE_SUBSCRIBED,
    "psubscribe": SUBSCRIBES | WHILE_SUBSCRIBED, "client|reply": MUTES,
    **dict.fromkeys(("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"), RUNS_SCRIPT),
    "acl|deluser": HAS_SECRETS, "acl|getuser": HAS_SECRETS, "acl|setuser": HAS_SECRETS, "auth": HAS_SECRETS,
    "config|set": HAS_SECRETS, "hello": HAS_SECRETS, "migrate": HAS_SECRETS,
}  # fmt: skip

COMMANDS = "rillet.commands"
FIRST_ARITY = {"zrank": 3, "zrevrank": 3, "command|getkeys": -4, "command|getkeysandflags": -4}
"""The arity of commands that Redis 7.2 allowed more forms."""

Handler = Callable[[Any, list[bytes]], None]
GetKeys = Callable[[list[bytes]], list[int]]


@cython.final
@cython.cclass
class Command:
    """The declaration of one command or subcommand; `index` is its position in the table, -1 outside of it.

    Only for a command of a module: module, its name; access, the flags of its keys; categories, those of ACL; tips, the
    hints for proxies.
    """

    __slots__ = (
        "name", "fullname", "arity", "flags", "write", "no_auth", "keys", "group", "since", "complexity", "summary",
        "syntax", "get_keys", "handler", "subcommands", "container", "index", "word", "traits",
        "level", "valkey", "module", "access", "categories", "tips",
    )  # fmt: skip
    name: readonly[str]
    fullname: readonly[str]
    container: readonly[str]
    arity: readonly[cython.long]
    flags: readonly[Any]
    write: readonly[cython.bint]
    no_auth: readonly[cython.bint]
    word: readonly[bytes]  # the name in lower case, if it has only letters
    traits: readonly[cython.int]
    keys: readonly[tuple[int, int, int]]
    group: readonly[str]
    since: readonly[str]
    level: readonly[cython.long]
    valkey: readonly[str]
    complexity: readonly[str]
    summary: readonly[str]
    syntax: readonly[str]
    get_keys: readonly[GetKeys | None]
    module: readonly[str]
    access: readonly[str]
    categories: readonly[str]
    tips: readonly[str]
    handler: readonly[Any]
    subcommands: public[dict[bytes, Command] | None]
    index: public[cython.long]

    def __init__(self, fullname: str, arity: int, flags: str, keys: tuple[int, int, int], group: str, since: str,
                 complexity: str, syntax: str, summary: str, handler: Handler | None, get_keys: GetKeys | None,
                 valkey: str = "", module: str = "", access: str = "",
                 categories: str = "", tips: str = "") -> None:
        self.fullname = fullname
        self.name = fullname.rpartition("|")[2]
        self.container = fullname.rpartition("|")[0]
        self.arity = arity
        self.flags = frozenset(flags.split())
        self.write = "write" in self.flags
        self.no_auth = "no_auth" in self.flags
        # Setting bit 0x20 of a letter makes it a small one; of other characters, it makes another one.
        self.word = self.name.encode() if self.name.isalpha() and self.name.isascii() else b"\0"
        self.traits = _TRAITS_OF_NAMES.get(fullname, 0)
        if fullname in FIRST_ARITY:
            self.traits |= ARITY_GREW
        for flag in self.flags:
            self.traits |= _TRAITS_OF_FLAGS.get(flag, 0)
        self.keys = keys
        self.group = group
        self.since = since or valkey
        self.level = 0 if module else level_of(since) if since else NEVER  # a module counts its own versions
        self.valkey = valkey
        self.module = module
        self.access = access
        self.categories = categories
        self.tips = tips
        self.complexity = complexity
        self.summary = summary
        self.syntax = syntax
        self.handler = handler
        self.get_keys = get_keys
        self.subcommands = None
        self.index = -1
        self._verify()

    def _verify(self) -> None:
        unknown = self.flags - FLAGS
        first, last, step = self.keys
        assert not unknown, f"{self.fullname}: unknown flags {sorted(unknown)}"
        assert self.group in GROUPS, f"{self.fullname}: unknown group {self.group}"
        assert not {"write", "readonly"} <= self.flags, f"{self.fullname}: both write and readonly"
        assert self.arity != 0, f"{self.fullname}: arity 0"
        assert self.summary or self.module, f"{self.fullname}: no docstring"
        assert (first == 0) == (step == 0), f"{self.fullname}: contradicting key positions"
        assert first == 0 or abs(self.arity) > first or "not_key" in self.flags, (
            f"{self.fullname}: the first key lies beyond the arity"
        )
        assert last >= first or last < 0, f"{self.fullname}: the last key lies before the first"

    def implementation(self) -> Implementation:
        """Return the implementation, for one engine."""
        if not isinstance(self.handler, (type, partial)):
            return on_list(self.handler)
        found: Implementation = self.handler()
        found.on_spans = "blocking" not in self.flags
        return found

    @cython.ccall
    def known_to(self, compat: Compat) -> cython.bint:
        """Return whether a server has the command: since a level, or since a version of Valkey."""
        return self.level <= compat.level or (compat.valkey and self.valkey != "")

    def arity_in(self, compat: Compat) -> int:
        """Return the arity in a server."""
        return self.arity if compat.knows(72) else FIRST_ARITY.get(self.fullname, self.arity)

    def accepts_in(self, count: int, compat: Compat) -> bool:
        """Return whether a call of `count` words satisfies the arity in a server."""
        arity = self.arity_in(compat)
        return count == arity or (arity < 0 and count >= -arity)

    def since_in(self, compat: Compat) -> str:
        """Return the version of the server that introduced the command."""
        return self.valkey if self.valkey and compat.valkey else self.since

    @cython.ccall
    def accepts(self, count: cython.Py_ssize_t) -> cython.bint:
        """Return whether a call of `count` words, including the command's name, satisfies the arity."""
        return count == self.arity or (self.arity < 0 and count >= -self.arity)

    def key_positions(self, argv: Sequence[bytes]) -> list[int]:
        """Return the positions of keys in argv (db.c: getKeysFromCommand); channel names are not keys."""
        if "not_key" in self.flags:
            return []
        if self.get_keys is not None:
            return self.get_keys(list(argv))
        first, last, step = self.keys
        if first == 0:
            return []
        end = last if last >= 0 else len(argv) + last
        return [position for position in range(first, end + 1, step) if position < len(argv)]


def load_commands(name: bytes | None = None) -> None:
    """Import the modules that declare a command, or all commands.

    The package is imported by its name, so that `runtime` does not depend on commands.
    """
    import_module(COMMANDS).load(name)


class CommandTable:
    """All commands by lower-case name; a container holds its subcommands.

    `by_name` has the commands that `get` found so far.
    """

    def __init__(self) -> None:
        self.by_name: dict[bytes, Command] = {}
        # Of the modules that were imported so far: a container may lack subcommands.
        self._declared: dict[bytes, Command] = {}
        self._on_found: Callable[[Command], object] | None = None
        # All commands and subcommands; `Command.index` is the position in this list.
        self._all: list[Command] = []

    def add(self, entry: Command) -> None:
        """Add a declaration; a name that was already declared is an error."""
        same_level = self._declared
        if entry.container:
            container = self._container(entry)
            assert container.subcommands is not None
            same_level = container.subcommands
        assert entry.name.encode() not in same_level, f"{entry.fullname} is declared twice"
        same_level[entry.name.encode()] = entry
        entry.index = len(self._all)
        self._all.append(entry)

    def _container(self, entry: Command) -> Command:
        if entry.container.encode() not in self._declared:
            self.add(Command(
                entry.container, -2, "", (0, 0, 0), entry.group, "" if entry.level == NEVER else entry.since,
                "Depends on subcommand.", "", f"A container for {entry.container} commands.", None, None,
                valkey=entry.valkey if entry.level == NEVER else "",
            ))  # fmt: skip
        container = self._declared[entry.container.encode()]
        if container.subcommands is None:
            container.subcommands = {}
        return container

    def get(self, name: bytes) -> Command | None:
        """Return the command of a name in lower case, with all its subcommands, or None."""
        found = self.by_name.get(name)
        if found is None:
            load_commands(name)
            found = self._declared.get(name)
            if found is not None:
                self.by_name[name] = found
                if self._on_found is not None:
                    self._on_found(found)
        return found

    def __getitem__(self, name: bytes) -> Command:
        """Return the command of a name in lower case; KeyError if there is none."""
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def watch(self, function: Callable[[Command], object]) -> None:
        """Call a function for each command that `get` found or will find for the first time."""
        for entry in list(self.by_name.values()):
            function(entry)
        self._on_found = function

    def find(self, name: bytes, compat: Compat | None = None) -> Command | None:
        """Return the command of that name in any case ("XADD", "xgroup|create"), or None.

        With `compat`, ignore commands that are newer than that server.
        """
        head, _, tail = name.lower().partition(b"|")
        found = self.get(head)
        if tail and found is not None:
            found = (found.subcommands or {}).get(tail)
        return None if found is None or (compat is not None and not found.known_to(compat)) else found

    @property
    def size(self) -> int:
        """The number of commands and subcommands: the first `Command.index` that a module's command can have."""
        load_commands()
        return len(self._all)

    def known(self, compat: Compat) -> list[Command]:
        """Return the commands that a server of this version has, sorted by name, without subcommands."""
        return [entry for entry in self if entry.known_to(compat)]

    def __iter__(self) -> Any:
        """Yield the commands sorted by name, without subcommands."""
        load_commands()
        return iter(sorted(self._declared.values(), key=lambda entry: entry.name))

    def __len__(self) -> int:
        """Return the number of commands, without subcommands."""
        load_commands()
        return len(self._declared)


TABLE = CommandTable()


def command(
    name: str,
    *,
    arity: int,
    group: str,
    since: str,
    complexity: str,
    flags: str = "",
    keys: tuple[int, int, int] = (0, 0, 0),
    syntax: str = "",
    get_keys: GetKeys | None = None,
    valkey: str = "",
    summary: str = "",
) -> Callable[[Any], Any]:
    """Record a handler under `name`: a decorated function, whose docstring is the summary, or an implementation.

    keys: (first, last, step) as in COMMAND INFO; get_keys: argv -> positions, if they vary;
    valkey: the version of Valkey that has it, if that is not in Redis 7.2.
    """

    def record(code: Any) -> Any:
        text = summary or (code.__doc__ or "").strip().partition("\n")[0]
        TABLE.add(Command(name, arity, flags, keys, group, since, complexity, syntax, text, code, get_keys, valkey))
        return code

    return record
