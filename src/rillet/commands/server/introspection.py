"""COMMAND: the table of commands as clients see it (Redis: server.c), generated from the declarations.

Client libraries read COMMAND once: for the positions of keys, and to find the commands that replicas may run.
`runtime/command_flags.py` and `runtime/key_specifications.py` have what the declarations do not contain.
`command_docs.py` describes commands for COMMAND DOCS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import arity_error, syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.help_texts import declare_help
from rillet.commands.replies import ReplySet, write_bulks, write_tree
from rillet.commands.server import command
from rillet.commands.server.info import UNLISTED, all_commands, find_command, find_subcommand, known_commands
from rillet.errors import CommandError
from rillet.runtime.acl.categories import categories
from rillet.runtime.admission import denies_oom
from rillet.runtime.command_flags import flags_in
from rillet.runtime.key_specifications import (
    KEYWORD_SEARCH,
    TARGETS,
    UNKNOWN_KEYS,
    call_flags,
    specification_flags,
    table_of,
)
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.structs.glob import matches
from rillet.types.compat import Compat

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_FLAG_ORDER = (
    "write", "readonly", "denyoom", "module", "admin", "pubsub", "noscript", "blocking", "loading", "stale",
    "skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "no_mandatory_keys", "no_async_loading", "no_multi",
    "movablekeys", "allow_busy",
    "script_runner",
)  # fmt: skip
# Notes of key specifications, beside their flags: command -> note for each specification.
_SCRIPT = "The keys of a script: {} stands for every use"
_NOTES = {
    "bitfield": ("Reads and changes the key",), "eval": (_SCRIPT.format("RW and UPDATE"),),
    "eval_ro": (_SCRIPT.format("RO and ACCESS"),), "fcall": (_SCRIPT.format("RW and UPDATE"),),
    "fcall_ro": (_SCRIPT.format("RO and ACCESS"),), "getex": ("RW and UPDATE: may change the expiry",),
    "hgetex": ("RW and UPDATE: may change the expiry of fields",),
    "pfcount": ("RW: may store the counted value in the key",), "set": ("RW and ACCESS: GET returns the old value",),
    "sort": ("", "Keys of BY and GET depend on the elements", "The key after STORE, at any position"),
    "sort_ro": ("", "Keys of BY and GET depend on the elements"), "xadd": ("UPDATE: may also trim the stream",),
}  # fmt: skip
# Hints for proxies and client libraries (Redis: command tips).
_TIPS = table_of("""
    nondeterministic_output = httl hpttl migrate cluster|bumpepoch cluster|count-failure-reports cluster|getkeysinslot
        cluster|info cluster|links cluster|myshardid cluster|nodes cluster|replicas cluster|shards cluster|slaves
        cluster|slots
        dump object|encoding object|freq object|idletime object|refcount lastsave pttl ttl xadd
        xautoclaim xclaim xinfo|consumers xpending xtrim client|list client|info time spop srandmember sscan
        hrandfield hscan zrandmember zscan
    nondeterministic_output request_policy:all_shards response_policy:special = info memory|doctor function|stats
        memory|malloc-stats memory|stats
    request_policy:multi_shard response_policy:agg_sum = del exists touch unlink
    request_policy:all_shards response_policy:all_succeeded = ping flushdb flushall function|flush memory|purge
        function|delete function|load function|restore
    request_policy:all_shards response_policy:one_succeeded = function|kill script|kill
    request_policy:all_nodes response_policy:all_succeeded = config|set latency|reset script|flush script|load
        slowlog|reset
    nondeterministic_output request_policy:all_nodes response_policy:special = latency|history latency|latest
        latency|doctor latency|graph latency|histogram
    nondeterministic_output request_policy:special response_policy:special = hotkeys|get clusterscan
    request_policy:special = hotkeys|reset hotkeys|start hotkeys|stop
    nondeterministic_output request_policy:all_shards = cluster|slot-stats
    request_policy:all_nodes nondeterministic_output = commandlog|get
    request_policy:all_nodes response_policy:agg_sum nondeterministic_output = commandlog|len
    request_policy:all_nodes response_policy:all_succeeded = commandlog|reset
    nondeterministic_output_order = command command|docs command|info command|list function|list module|list smembers
        sinter sunion sdiff hgetall hkeys hvals
    request_policy:all_shards response_policy:agg_sum = dbsize
    request_policy:all_shards nondeterministic_output_order = keys
    request_policy:multi_shard = mget
    request_policy:multi_shard response_policy:all_succeeded = mset msetex
    request_policy:multi_shard response_policy:agg_min = msetnx
    request_policy:all_shards nondeterministic_output = randomkey
    nondeterministic_output request_policy:special = scan
    request_policy:all_shards response_policy:agg_logical_and = script|exists
    request_policy:all_nodes nondeterministic_output = slowlog|get
    request_policy:all_nodes response_policy:agg_sum nondeterministic_output = slowlog|len
    request_policy:all_shards response_policy:agg_min = wait waitaof
""")


# Tips that other servers have, by the level from which on; Valkey's tips are those of its level.
_LATER_TIPS = {
    "acl|deluser": "request_policy:all_nodes response_policy:all_succeeded",
    "acl|save": "request_policy:all_nodes response_policy:all_succeeded",
    "acl|setuser": "request_policy:all_nodes response_policy:all_succeeded",
    "client|setinfo": "request_policy:all_nodes response_policy:all_succeeded",
    "client|setname": "request_policy:all_nodes response_policy:all_succeeded",
    "config|resetstat": "request_policy:all_nodes response_policy:all_succeeded",
    "config|rewrite": "request_policy:all_nodes response_policy:all_succeeded",
    "latency|reset": "request_policy:all_nodes response_policy:agg_sum", "msetnx": "",
    "randomkey": "request_policy:all_shards response_policy:special nondeterministic_output",
    "scan": "nondeterministic_output request_policy:special response_policy:special",
}  # fmt: skip
_VALKEY_TIPS = {"cluster|syncslots": ""}
_NO_TIPS_BEFORE_8_0 = frozenset(("httl", "hpttl"))  # in Valkey, too
_REDIS_TIPS = {"cluster|syncslots": "nondeterministic_output"}
_VALKEY_ARITY = {"cluster|replicate": -3, "script|debug": -3}


def _arity(entry: Command, compat: Compat) -> int:
    """Return the arity that a server shows."""
    if compat.valkey and entry.fullname in _VALKEY_ARITY:
        return _VALKEY_ARITY[entry.fullname]
    return entry.arity_in(compat)


# -- COMMAND INFO -----------------------------------------------------------------------------------


def _key_specs(entry: Command, compat: Compat) -> ReplySet:
    """Return the key specifications: access flags, the position of the first key, and how to find the other keys."""
    access, notes = specification_flags(entry, compat), _NOTES.get(entry.fullname, ())
    if entry.fullname == "hgetex" and compat.valkey:
        notes = ()
    first, last, step = entry.keys
    specs = ReplySet()
    for index, flags in enumerate(access):
        is_last = index == len(access) - 1
        begin: tuple[bytes, dict[bytes, Any]] = (b"index", {b"index": first + index})
        find: tuple[bytes, dict[bytes, Any]]
        if index and entry.fullname in UNKNOWN_KEYS:
            begin = find = (b"unknown", {})
        elif entry.fullname in KEYWORD_SEARCH:
            keyword, start = KEYWORD_SEARCH[entry.fullname]
            begin = (b"keyword", {b"keyword": keyword, b"startfrom": start})
            find = (b"range", {b"lastkey": -1, b"keystep": 1, b"limit": 2})
        elif entry.fullname in TARGETS and index:
            keywords, start, end = TARGETS[entry.fullname]
            begin = (b"keyword", {b"keyword": keywords[index - 1], b"startfrom": start})
            find = (b"range", {b"lastkey": end, b"keystep": 1, b"limit": 0})
        elif entry.fullname in UNKNOWN_KEYS:
            find = (b"range", {b"lastkey": 0, b"keystep": 1, b"limit": 0})
        elif isinstance(entry.get_keys, KeysAfterNumber) and is_last:
            begin = (b"index", {b"index": entry.get_keys.at})
            find = (b"keynum", {b"keynumidx": 0, b"firstkey": 1, b"keystep": entry.get_keys.step})
        else:
            span = last if last < 0 and is_last else 0 if len(access) > 1 else last - first
            find = (b"range", {b"lastkey": span, b"keystep": step, b"limit": 0})
        note = notes[index] if index < len(notes) else ""
        spec: dict[bytes, Any] = {b"notes": note.encode()} if note else {}
        spec[b"flags"] = ReplySet(flags.split())
        for name, (kind, numbers) in ((b"begin_search", begin), (b"find_keys", find)):
            spec[name] = {b"type": kind, b"spec": numbers}
        specs.append(spec)
    return specs


def _tips(entry: Command, compat: Compat) -> list[bytes]:
    """Return the hints for proxies that a server shows."""
    tips = _TIPS.get(entry.fullname, "")
    if entry.fullname in _NO_TIPS_BEFORE_8_0 and not compat.knows(80):
        tips = ""
    if compat.knows(72):
        tips = _LATER_TIPS.get(entry.fullname, tips)
    tips = (_VALKEY_TIPS if compat.valkey else _REDIS_TIPS).get(entry.fullname, tips)
    return (entry.tips if entry.module else tips).encode().split()


def _info(entry: Command | None, compat: Compat) -> list[Any] | None:
    """Return the ten fields of a command in COMMAND INFO, None for an unknown one (server.c: addReplyCommandInfo)."""
    if entry is None:
        return None
    flags = flags_in(entry, compat)
    if denies_oom(entry, compat):
        flags.add("denyoom")
    if entry.module:
        flags.add("module")
    names = [flag for flag in _FLAG_ORDER if flag in flags]
    if compat.valkey:
        names = [flag.replace("slowlog", "commandlog") for flag in names]
    return [
        entry.fullname.encode(), _arity(entry, compat), ReplySet(names),
        *entry.keys, ReplySet("@" + name for name in categories(entry, compat)), _tips(entry, compat),
        _key_specs(entry, compat),
        [_info(one, compat) for one in (entry.subcommands or {}).values() if one.known_to(compat)],
    ]  # fmt: skip


def _reply_all(session: Session) -> None:
    compat = session.engine.settings.compat
    write_tree(session.out, [_info(entry, compat) for entry in known_commands(session.engine)])


@command("command", arity=-1, flags="loading stale", since="2.8.13", complexity="O(N) for N commands")
def command_(session: Session, argv: list[bytes]) -> None:
    """Describe every command."""
    _reply_all(session)


@command("command|info", arity=-2, flags="loading stale", since="2.8.13", syntax="[command-name [command-name ...]]",
         complexity="O(N) for N commands")
def command_info(session: Session, argv: list[bytes]) -> None:
    """Describe the given commands, or all commands."""
    if len(argv) == 2:
        _reply_all(session)
        return
    compat = session.engine.settings.compat
    write_tree(session.out, [_info(_listed(session.engine, name), compat) for name in argv[2:]])


def _listed(engine: CommandEngine, name: bytes) -> Command | None:
    """Return the command of a name, or None if there is none or COMMAND does not show it."""
    found = find_command(engine, name)
    return None if found is None or found.fullname in UNLISTED else found


@command("command|count", arity=2, flags="loading stale", since="2.8.13", complexity="O(1)")
def command_count(session: Session, argv: list[bytes]) -> None:
    """Count the commands."""
    session.out.integer(len(known_commands(session.engine)))


@command("command|list", arity=-2, flags="loading stale", since="7.0.0",
         syntax="[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]", complexity="O(N) for N commands")
def command_list(session: Session, argv: list[bytes]) -> None:
    """List the names of all commands, or of those that pass a filter."""
    compat = session.engine.settings.compat
    known = [one for one in all_commands(session.engine) if one.known_to(compat) and one.fullname not in UNLISTED]
    names = [entry.fullname for entry in known]
    if len(argv) != 2:
        if len(argv) != 5 or argv[2].lower() != b"filterby":
            raise syntax_error()
        kind, wanted = argv[3].lower(), argv[4]
        if kind == b"module":
            module = wanted.decode("utf-8", "surrogateescape")
            names = [entry.fullname for entry in known if entry.module and entry.module == module]
        elif kind == b"aclcat":
            category = wanted.lower().decode("latin-1")
            names = [entry.fullname for entry in known if category in categories(entry, compat)]
        elif kind == b"pattern":
            names = [name for name in names if matches(wanted, name.encode(), True)]
        else:
            raise syntax_error()
    write_bulks(session.out, [name.encode() for name in names])


@command("command|docs", arity=-2, flags="loading stale", since="7.0.0", syntax="[command-name [command-name ...]]",
         complexity="O(N) for N commands")
def command_docs(session: Session, argv: list[bytes]) -> None:
    """Return the documentation of the given commands, or of all commands."""
    from rillet.commands.server.command_docs import write_docs

    if len(argv) == 2:
        entries = known_commands(session.engine)
    else:
        named = (_listed(session.engine, name) for name in argv[2:])
        entries = [entry for entry in named if entry is not None]
    write_docs(session.out, entries, session.engine.settings.compat)


# -- COMMAND GETKEYS --------------------------------------------------------------------------------


def _find_keys(engine: CommandEngine, argv: list[bytes]) -> tuple[Command, list[int]]:
    """Return the command in argv[2:] and the positions of its keys in argv (getKeysSubcommandImpl)."""
    line, compat = argv[2:], engine.settings.compat
    if len(line) < 2 and not compat.knows(72):
        raise arity_error(f"command|{argv[1].lower().decode()}")
    entry = find_subcommand(engine, line)
    if entry is None:
        raise CommandError("Invalid command specified")
    if not specification_flags(entry, compat) or "not_key" in entry.flags:
        raise CommandError("The command has no key arguments")
    if not entry.accepts_in(len(line), compat):
        raise CommandError("Invalid number of arguments specified for command")
    positions = entry.key_positions(line)
    if isinstance(entry.get_keys, KeysAfterNumber) and len(positions) <= len(entry.get_keys.before):
        positions = []  # the number of keys is invalid
    if not positions and "no_mandatory_keys" not in entry.flags:
        raise CommandError("Invalid arguments specified for command")
    return entry, [position + 2 for position in positions]


@command("command|getkeys", arity=-3, flags="loading stale", since="2.8.13", syntax="command [arg [arg ...]]",
         complexity="O(N) for N arguments")
def command_getkeys(session: Session, argv: list[bytes]) -> None:
    """Return the keys of a command line."""
    _, positions = _find_keys(session.engine, argv)
    write_bulks(session.out, [argv[position] for position in positions])


@command("command|getkeysandflags", arity=-3, flags="loading stale", since="7.0.0", syntax="command [arg [arg ...]]",
         complexity="O(N) for N arguments")
def command_getkeysandflags(session: Session, argv: list[bytes]) -> None:
    """Return the keys of a command line, and how the command accesses them."""
    entry, positions = _find_keys(session.engine, argv)
    access = call_flags(entry, argv[2:], session.engine.settings.compat)
    write_tree(session.out, [
        [argv[position], ReplySet(flag for flag in access[min(index, len(access) - 1)].split() if flag not in _HINTS)]
        for index, position in enumerate(positions)
    ])  # fmt: skip


_HINTS = ("variable_flags", "incomplete")  # they describe the specification, not a key


declare_help("command", "server", "5.0.0")
