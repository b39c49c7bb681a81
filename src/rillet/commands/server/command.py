"""COMMAND: the table of commands as clients see it (Redis: server.c), generated from the declarations.

Client libraries read COMMAND once: for the positions of keys, and to find the commands that replicas may run.
Two tables here add what the declarations do not contain: how a command accesses its keys, and the hints for proxies.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rillet.commands.arguments import syntax_error
from rillet.commands.help import reply_help
from rillet.commands.server.info import all_commands
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import command_syntax
from rillet.runtime.registry import TABLE, Command, command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled
from rillet.types.compat import Compat, level_of

_FLAG_ORDER = (
    "write", "readonly", "denyoom", "admin", "pubsub", "noscript", "blocking", "loading", "stale", "skip_monitor",
    "skip_slowlog", "asking", "fast", "no_auth", "no_mandatory_keys", "no_async_loading", "no_multi", "movablekeys",
    "allow_busy",
)  # fmt: skip
CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream",
    "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
)  # fmt: skip
_CATEGORY_OF_GROUP = {
    "string": "string", "stream": "stream", "generic": "keyspace", "connection": "connection", "list": "list",
    "transactions": "transaction", "scripting": "scripting", "set": "set", "hash": "hash", "sorted-set": "sortedset",
}  # fmt: skip
_MORE_CATEGORIES = {
    "keys": "dangerous", "restore": "dangerous", "info": "dangerous", "role": "admin dangerous",
    "lastsave": "admin dangerous",
    "dbsize": "keyspace", "flushdb": "keyspace dangerous", "flushall": "keyspace dangerous",
    "swapdb": "keyspace dangerous",
}  # fmt: skip
_KEY_FLAGS = ("RO", "RW", "OW", "RM", "access", "update", "insert", "delete", "variable_flags")
# How a command accesses its keys if not simply "RO" or "RW"; two values if two keys differ.
_ACCESS: dict[str, str] = {
    **dict.fromkeys(
        "dump expiretime get getrange lcs mget pexpiretime pttl rillet.xafter rillet.xnodes rillet.xrank substr ttl "
        "xinfo|consumers xinfo|groups xinfo|stream xpending xrange xread xreadgroup xrevrange".split(),
        "RO access",
    ),
    **dict.fromkeys("decr decrby getex getset incr incrby incrbyfloat move".split(), "RW access update"),
    **dict.fromkeys(
        "expire expireat pexpire pexpireat persist setrange xack xadd xcfgset xclaim xgroup|setid xidmprecord "
        "xsetid".split(),
        "RW update",
    ),
    **dict.fromkeys("xautoclaim xdel xdelex xgroup|delconsumer xgroup|destroy xtrim".split(), "RW delete"),
    "xackdel": "RW update delete",
    **dict.fromkeys("append xgroup|create xgroup|createconsumer".split(), "RW insert"),
    **dict.fromkeys("lpush rpush lpushx rpushx linsert sadd".split(), "RW insert"),
    **dict.fromkeys("lpop rpop blpop brpop lmpop blmpop spop".split(), "RW access delete"),
    **dict.fromkeys(
        "lindex lrange lpos smismember smembers srandmember sinter sunion sdiff sintercard sunioncard sdiffcard "
        "sscan".split(),
        "RO access",
    ),
    **dict.fromkeys("lrem ltrim srem hdel".split(), "RW delete"),
    **dict.fromkeys("hget hgetall hkeys hmget hrandfield hscan hvals".split(), "RO access"),
    **dict.fromkeys("hincrby hincrbyfloat".split(), "RW access update"),
    **dict.fromkeys("hset hmset".split(), "RW update"),
    "hsetnx": "RW insert",
    "hgetdel": "RW access delete",
    **dict.fromkeys("zpopmin zpopmax bzpopmin bzpopmax zmpop bzmpop".split(), "RW access delete"),
    **dict.fromkeys("zrem zremrangebyrank zremrangebyscore zremrangebylex".split(), "RW delete"),
    **dict.fromkeys(
        "zscore zmscore zcount zlexcount zrank zrevrank zrange zrevrange zrangebyscore zrevrangebyscore zrangebylex "
        "zrevrangebylex zunion zinter zdiff zintercard zrandmember zscan".split(),
        "RO access",
    ),
    "zadd": "RW update",
    "zincrby": "RW access update",
    **dict.fromkeys("zrangestore zunionstore zinterstore zdiffstore".split(), "OW update;RO access"),
    **dict.fromkeys("lmove rpoplpush blmove brpoplpush smove".split(), "RW access delete;RW insert"),
    "lset": "RW update",
    "sinterstore": "RW update;RO access",
    **dict.fromkeys("sunionstore sdiffstore".split(), "OW update;RO access"),
    **dict.fromkeys("mset psetex setex restore".split(), "OW update"),
    **dict.fromkeys("msetnx setnx".split(), "OW insert"),
    **dict.fromkeys("del unlink".split(), "RM delete"),
    "getdel": "RW access delete",
    "set": "RW access update variable_flags",
    "copy": "RO access;OW update",
    "rename": "RW access delete;OW update",
    "renamenx": "RW access delete;OW insert",
}
_KEYWORD_SEARCH = {"xread": (b"STREAMS", 1), "xreadgroup": (b"STREAMS", 4)}
# The position of `numkeys`.
_NUMBER_SEARCH = {
    "lmpop": 1, "blmpop": 2, "sintercard": 1, "sunioncard": 1, "sdiffcard": 1, "zmpop": 1, "bzmpop": 2, "zunion": 1,
    "zinter": 1, "zdiff": 1, "zintercard": 1, "zunionstore": 2, "zinterstore": 2, "zdiffstore": 2,
}  # fmt: skip
_OUTPUT = "nondeterministic_output"
_TIPS: dict[str, str] = {
    **dict.fromkeys(
        "dump object|encoding object|freq object|idletime object|refcount lastsave pttl ttl xadd xautoclaim xclaim "
        "xinfo|consumers xpending xtrim client|list client|info info time".split(),
        _OUTPUT,
    ),
    **dict.fromkeys("del exists touch unlink".split(), "request_policy:multi_shard response_policy:agg_sum"),
    **dict.fromkeys(
        "ping flushdb flushall function|flush memory|purge".split(),
        "request_policy:all_shards response_policy:all_succeeded",
    ),
    **dict.fromkeys(
        "memory|doctor memory|malloc-stats memory|stats info".split(),
        _OUTPUT + " request_policy:all_shards response_policy:special",
    ),
    **dict.fromkeys(
        "config|set latency|reset script|flush slowlog|reset".split(),
        "request_policy:all_nodes response_policy:all_succeeded",
    ),
    **dict.fromkeys("latency|history latency|latest".split(),
                    _OUTPUT + " request_policy:all_nodes response_policy:special"),
    **dict.fromkeys("acl|users command command|docs command|info command|list function|list module|list".split(),
                    _OUTPUT + "_order"),
    **dict.fromkeys("smembers sinter sunion sdiff hgetall hkeys hvals".split(), _OUTPUT + "_order"),
    **dict.fromkeys("spop srandmember sscan hrandfield hscan zrandmember zscan".split(), _OUTPUT),
    "acl|users": "", "latency|reset": "request_policy:all_nodes response_policy:all_succeeded",
    "dbsize": "request_policy:all_shards response_policy:agg_sum",
    "keys": "request_policy:all_shards " + _OUTPUT + "_order",
    "mget": "request_policy:multi_shard",
    "mset": "request_policy:multi_shard response_policy:all_succeeded",
    "msetnx": "request_policy:multi_shard response_policy:agg_min",
    "randomkey": "request_policy:all_shards " + _OUTPUT,
    "scan": _OUTPUT + " request_policy:special",
    "script|exists": "request_policy:all_shards response_policy:agg_logical_and",
    "slowlog|get": "request_policy:all_nodes " + _OUTPUT,
    "slowlog|len": "request_policy:all_nodes response_policy:agg_sum " + _OUTPUT,
    "wait": "request_policy:all_shards response_policy:agg_min",
    "waitaof": "request_policy:all_shards response_policy:agg_min",
}  # fmt: skip


def categories(entry: Command) -> list[str]:
    """Return the ACL categories of a command, in Redis's order (setImplicitACLCategories)."""
    found = set(_MORE_CATEGORIES.get(entry.fullname, "").split())
    if entry.subcommands is None and entry.group in _CATEGORY_OF_GROUP:
        found.add(_CATEGORY_OF_GROUP[entry.group])
    if entry.fullname.partition("|")[0] in ("command", "wait", "waitaof"):
        found.add("connection")
        found.discard("keyspace")
    flags = entry.flags
    found |= flags & {"write", "fast", "blocking", "pubsub"}
    if "readonly" in flags:
        found.add("read")
    if "admin" in flags:
        found |= {"admin", "dangerous"}
    if "fast" not in flags:
        found.add("slow")
    return [name for name in CATEGORIES if name in found]


def _access(entry: Command) -> list[str]:
    """Return the flags of each key specification of a command."""
    if not entry.keys[0] and entry.get_keys is None:
        return []
    if "not_key" in entry.flags:
        return ["not_key"]
    return _ACCESS.get(entry.fullname, "RW" if entry.write else "RO").split(";")


# -- COMMAND INFO -----------------------------------------------------------------------------------


def _words(out: ReplyWriter, words: Iterable[str]) -> None:
    """Reply with a set of simple strings."""
    listed = list(words)
    out.set(len(listed))
    for word in listed:
        out.simple(word.encode())


def _pair(out: ReplyWriter, name: bytes, kind: bytes, spec: dict[bytes, bytes | int]) -> None:
    """Reply with one half of a key specification: its type and its numbers."""
    out.bulk(name)
    out.map(2)
    out.bulk(b"type")
    out.bulk(kind)
    out.bulk(b"spec")
    out.map(len(spec))
    for key, value in spec.items():
        out.bulk(key)
        if isinstance(value, bytes):
            out.bulk(value)
        else:
            out.integer(value)


def _key_specs(out: ReplyWriter, entry: Command) -> None:
    access = _access(entry)
    first, last, step = entry.keys
    out.set(len(access))
    for index, flags in enumerate(access):
        out.map(3)
        out.bulk(b"flags")
        _words(out, flags.split())
        if entry.fullname in _KEYWORD_SEARCH:
            keyword, start = _KEYWORD_SEARCH[entry.fullname]
            _pair(out, b"begin_search", b"keyword", {b"keyword": keyword, b"startfrom": start})
            _pair(out, b"find_keys", b"range", {b"lastkey": -1, b"keystep": 1, b"limit": 2})
            continue
        if entry.fullname in _NUMBER_SEARCH and index == len(access) - 1:
            _pair(out, b"begin_search", b"index", {b"index": _NUMBER_SEARCH[entry.fullname]})
            _pair(out, b"find_keys", b"keynum", {b"keynumidx": 0, b"firstkey": 1, b"keystep": 1})
            continue
        _pair(out, b"begin_search", b"index", {b"index": first + index})
        if len(access) > 1:
            span = last if last < 0 and index == len(access) - 1 else 0
        else:
            span = last if last < 0 else last - first
        _pair(out, b"find_keys", b"range", {b"lastkey": span, b"keystep": step, b"limit": 0})


def _reply_info(out: ReplyWriter, entry: Command | None) -> None:
    """Reply with the ten fields of a command (server.c: addReplyCommandInfo)."""
    if entry is None:
        out.null()
        return
    out.array(10)
    out.bulk(entry.fullname.encode())
    out.integer(entry.arity)
    _words(out, (flag for flag in _FLAG_ORDER if flag in entry.flags))
    for position in entry.keys:
        out.integer(position)
    _words(out, ("@" + name for name in categories(entry)))
    tips = _TIPS.get(entry.fullname, "").split()
    out.array(len(tips))
    for tip in tips:
        out.bulk(tip.encode())
    _key_specs(out, entry)
    subcommands = (entry.subcommands or {}).values()
    out.array(len(subcommands))
    for one in subcommands:
        _reply_info(out, one)


def _reply_all(session: Session) -> None:
    known = TABLE.known(session.engine.settings.compat)
    session.out.array(len(known))
    for entry in known:
        _reply_info(session.out, entry)


@command("command", arity=-1, flags="loading stale", group="server", since="2.8.13",
         complexity="O(N) for N commands")
def command_(session: Session, argv: list[bytes]) -> None:
    """Describe every command."""
    _reply_all(session)


@command("command|info", arity=-2, flags="loading stale", group="server", since="2.8.13",
         complexity="O(N) for N commands", syntax="[command-name [command-name ...]]")
def command_info(session: Session, argv: list[bytes]) -> None:
    """Describe some commands, or all."""
    if len(argv) == 2:
        _reply_all(session)
        return
    session.out.array(len(argv) - 2)
    for name in argv[2:]:
        _reply_info(session.out, TABLE.find(name, session.engine.settings.compat))


@command("command|count", arity=2, flags="loading stale", group="server", since="2.8.13", complexity="O(1)")
def command_count(session: Session, argv: list[bytes]) -> None:
    """Count the commands."""
    session.out.integer(len(TABLE.known(session.engine.settings.compat)))


@command("command|list", arity=-2, flags="loading stale", group="server", since="7.0.0",
         complexity="O(N) for N commands",
         syntax="[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]")
def command_list(session: Session, argv: list[bytes]) -> None:
    """List the names of all commands, or of those that pass a filter."""
    level = session.engine.settings.compat.level
    known = [entry for entry in all_commands() if entry.level <= level]
    names = [entry.fullname for entry in known]
    if len(argv) != 2:
        if len(argv) != 5 or argv[2].lower() != b"filterby":
            raise syntax_error()
        kind, wanted = argv[3].lower(), argv[4]
        if kind == b"module":
            names = []
        elif kind == b"aclcat":
            category = wanted.lower().decode("latin-1")
            names = [entry.fullname for entry in known if category in categories(entry)]
        elif kind == b"pattern":
            names = [name for name in names if compiled(wanted, True).matches(name.encode())]
        else:
            raise syntax_error()
    session.out.array(len(names))
    for name in names:
        session.out.bulk(name.encode())


# -- COMMAND DOCS -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _arguments(syntax: str) -> list[command_syntax.Argument]:
    return command_syntax.parse(syntax)


def _reply_arguments(out: ReplyWriter, arguments: list[command_syntax.Argument], level: int) -> None:
    arguments = [one for one in arguments if not one.since or level_of(one.since) <= level]
    out.array(len(arguments))
    for one in arguments:
        flags = [name for name in ("optional", "multiple") if getattr(one, name)]
        fields = [("name", one.name), ("type", one.type)]
        if one.type == "key":
            fields.append(("key_spec_index", "0"))
        if one.token:
            fields.append(("token", one.token))
        if one.since:
            fields.append(("since", one.since))
        out.map(len(fields) + bool(flags) + bool(one.arguments))
        for name, value in fields:
            out.bulk(name.encode())
            if name == "key_spec_index":
                out.integer(0)
            else:
                out.bulk(value.encode())
        if flags:
            out.bulk(b"flags")
            _words(out, flags)
        if one.arguments:
            out.bulk(b"arguments")
            _reply_arguments(out, one.arguments, level)


def _reply_docs(out: ReplyWriter, entry: Command, level: int) -> None:
    """Reply with the documentation of a command for a server of this version (server.c: addReplyCommandDocs)."""
    out.bulk(entry.fullname.encode())
    fields = (("summary", entry.summary), ("since", entry.since), ("group", entry.group),
              ("complexity", entry.complexity))  # fmt: skip
    arguments = _arguments(entry.syntax)
    subcommands = [one for one in (entry.subcommands or {}).values() if one.level <= level]
    out.map(len(fields) + bool(arguments) + bool(subcommands))
    for name, value in fields:
        out.bulk(name.encode())
        out.bulk(value.encode())
    if arguments:
        out.bulk(b"arguments")
        _reply_arguments(out, arguments, level)
    if subcommands:
        out.bulk(b"subcommands")
        out.map(len(subcommands))
        for one in subcommands:
            _reply_docs(out, one, level)


@command("command|docs", arity=-2, flags="loading stale", group="server", since="7.0.0",
         complexity="O(N) for N commands", syntax="[command-name [command-name ...]]")
def command_docs(session: Session, argv: list[bytes]) -> None:
    """Document some commands, or all."""
    compat = session.engine.settings.compat
    if len(argv) == 2:
        entries = TABLE.known(compat)
    else:
        entries = [entry for entry in (TABLE.find(name, compat) for name in argv[2:]) if entry is not None]
    session.out.map(len(entries))
    for entry in entries:
        _reply_docs(session.out, entry, compat.level)


# -- COMMAND GETKEYS --------------------------------------------------------------------------------


def _find_keys(argv: list[bytes], compat: Compat) -> tuple[Command, list[int]]:
    """Return the command in argv[2:] and the positions of its keys in argv (getKeysSubcommandImpl)."""
    line = argv[2:]
    entry = TABLE.find(line[0], compat)
    if entry is not None and entry.subcommands is not None and len(line) > 1:
        entry = entry.subcommands.get(line[1].lower())
    if entry is None or entry.level > compat.level:
        raise CommandError("Invalid command specified")
    if not _access(entry) or "not_key" in entry.flags:
        raise CommandError("The command has no key arguments")
    if not entry.accepts(len(line)):
        raise CommandError("Invalid number of arguments specified for command")
    positions = entry.key_positions(line)
    if not positions and "no_mandatory_keys" not in entry.flags:
        raise CommandError("Invalid arguments specified for command")
    return entry, [position + 2 for position in positions]


@command("command|getkeys", arity=-4, flags="loading stale", group="server", since="2.8.13",
         complexity="O(N) for N arguments", syntax="command [arg [arg ...]]")
def command_getkeys(session: Session, argv: list[bytes]) -> None:
    """Return the keys of a command line."""
    _, positions = _find_keys(argv, session.engine.settings.compat)
    session.out.array(len(positions))
    for position in positions:
        session.out.bulk(argv[position])


@command("command|getkeysandflags", arity=-4, flags="loading stale", group="server", since="7.0.0",
         complexity="O(N) for N arguments", syntax="command [arg [arg ...]]")
def command_getkeysandflags(session: Session, argv: list[bytes]) -> None:
    """Return the keys of a command line, and how the command accesses them."""
    entry, positions = _find_keys(argv, session.engine.settings.compat)
    access = _access(entry)
    session.out.array(len(positions))
    for index, position in enumerate(positions):
        flags = access[min(index, len(access) - 1)].split()
        if entry.fullname == "set":
            flags = _set_access(argv[2:])
        session.out.array(2)
        session.out.bulk(argv[position])
        _words(session.out, flags)


def _set_access(line: list[bytes]) -> list[str]:
    """Return how a SET accesses its key: without GET it only overwrites (db.c: setGetKeys)."""
    return ["RW", "access", "update"] if any(word.lower() == b"get" for word in line[3:]) else ["OW", "update"]


@command("command|help", arity=2, flags="loading stale", group="server", since="5.0.0", complexity="O(1)")
def command_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "command")
