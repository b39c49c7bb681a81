"""COMMAND: the table of commands as clients see it (Redis: server.c), generated from the declarations.

Client libraries read COMMAND once: for the positions of keys, and to find the commands that replicas may run.
Two tables here add what the declarations do not contain: how a command accesses its keys, and the hints for proxies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rillet.commands.arguments import syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.replies import ReplySet, write_bulks, write_tree
from rillet.commands.server import command
from rillet.commands.server.info import all_commands, find_command, known_commands
from rillet.errors import CommandError
from rillet.runtime import command_syntax
from rillet.runtime.admission import denies_oom
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled
from rillet.types.compat import Compat, level_of

_FLAG_ORDER = (
    "write", "readonly", "denyoom", "module", "admin", "pubsub", "noscript", "blocking", "loading", "stale",
    "skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "no_mandatory_keys", "no_async_loading", "no_multi",
    "movablekeys", "allow_busy",
)  # fmt: skip
CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream",
    "array", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
)  # fmt: skip
_CATEGORY_OF_GROUP = {
    "string": "string", "stream": "stream", "generic": "keyspace", "connection": "connection", "list": "list",
    "transactions": "transaction", "scripting": "scripting", "set": "set", "hash": "hash", "sorted-set": "sortedset",
    "bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "array": "array",
}  # fmt: skip
_MORE_CATEGORIES = {
    "keys": "dangerous", "restore": "dangerous", "info": "dangerous", "role": "admin dangerous",
    "lastsave": "admin dangerous", "sort": "set sortedset list dangerous", "sort_ro": "set sortedset list dangerous",
    "dbsize": "keyspace", "flushdb": "keyspace dangerous", "flushall": "keyspace dangerous",
    "swapdb": "keyspace dangerous",
}  # fmt: skip


def _table(text: str) -> dict[str, str]:
    """Parse `value = command command ...` and its continuation lines into a dict from command to value."""
    table: dict[str, str] = {}
    value = ""
    for line in text.splitlines():
        head, equals, names = line.partition("=")
        if equals:
            value = head.strip()
        table.update(dict.fromkeys((names if equals else line).split(), value))
    return table


# How commands access their keys, if not simply "RO" or "RW"; a ";" separates the accesses of two key specifications.
_ACCESS = _table("""
    RO access = dump digest expiretime get getrange lcs mget pexpiretime pttl rillet.xafter rillet.xnodes rillet.xrank
        getbit bitcount bitpos bitfield_ro
        arcount arget argetrange argrep arinfo arlastitems arlen armget arnext arop arscan
        geopos geohash geodist georadius_ro georadiusbymember_ro geosearch
        substr ttl xinfo|consumers xinfo|groups xinfo|stream xpending xrange xread xreadgroup xrevrange lindex
        lrange lpos smismember smembers srandmember sinter sunion sdiff sintercard sunioncard sdiffcard sscan hget
        httl hpttl hexpiretime hpexpiretime
        hgetall hkeys hmget hrandfield hscan hvals zscore zmscore zcount zlexcount zrank zrevrank zrange zrevrange
        zrangebyscore zrevrangebyscore zrangebylex zrevrangebylex zunion zinter zdiff zintercard zrandmember zscan
    RW access update = hgetex increx setbit decr decrby getex getset incr incrby incrbyfloat move hincrby hincrbyfloat
        zincrby
    RW update = hexpire hpexpire hexpireat hpexpireat hpersist hsetex
        expire expireat pexpire pexpireat persist setrange xack xadd xcfgset xclaim xgroup|setid xidmprecord
        xsetid hset hmset zadd lset geoadd
        arinsert armset arring arseek arset
    RW delete = xautoclaim xdel xdelex xgroup|delconsumer xgroup|destroy xtrim lrem ltrim srem hdel zrem
        zremrangebyrank zremrangebyscore zremrangebylex
        ardel ardelrange
    RW update delete = xackdel
    RW delete variable_flags = delex
    RW insert = append xgroup|create xgroup|createconsumer lpush rpush lpushx rpushx linsert sadd hsetnx
    RW access delete = lpop rpop blpop brpop lmpop blmpop spop hgetdel zpopmin zpopmax bzpopmin bzpopmax zmpop bzmpop
        getdel
    RW insert = pfadd
    RW access = pfcount pfdebug
    RW access insert;RO access = pfmerge
    OW update;RO access = geosearchstore bitop zrangestore zunionstore zinterstore zdiffstore sunionstore sdiffstore
    RW access delete;RW insert = lmove lmovem rpoplpush blmove brpoplpush smove
    RW update;RO access = sinterstore
    OW update = mset msetex psetex setex restore
    OW insert = msetnx setnx
    RM delete = del unlink delifeq
    RW access update variable_flags = set bitfield
    RO access;OW update = copy
    RO access;OW update;OW update = georadius georadiusbymember
    RO access;RO access;OW update = sort
    RO access;RO access = sort_ro
    RW access delete;OW update = rename
    RW access delete;OW insert = renamenx
""")
# Commands whose first key specification is a position, while the keys of the others depend on data or options.
_UNKNOWN_KEYS = frozenset(("sort", "sort_ro"))
_KEYWORD_SEARCH = {"xread": (b"STREAMS", 1), "xreadgroup": (b"STREAMS", 4)}
# Commands whose further keys follow a word, and where the search for it starts.
_TARGETS = {"georadius": 6, "georadiusbymember": 5}
# Hints for proxies and client libraries (Redis: command tips).
_TIPS = _table("""
    nondeterministic_output = httl hpttl
        dump object|encoding object|freq object|idletime object|refcount lastsave pttl ttl xadd
        xautoclaim xclaim xinfo|consumers xpending xtrim client|list client|info time spop srandmember sscan
        hrandfield hscan zrandmember zscan
    nondeterministic_output request_policy:all_shards response_policy:special = info memory|doctor
        memory|malloc-stats memory|stats
    request_policy:multi_shard response_policy:agg_sum = del exists touch unlink
    request_policy:all_shards response_policy:all_succeeded = ping flushdb flushall function|flush memory|purge
    request_policy:all_nodes response_policy:all_succeeded = config|set latency|reset script|flush slowlog|reset
    nondeterministic_output request_policy:all_nodes response_policy:special = latency|history latency|latest
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


def categories(entry: Command) -> list[str]:
    """Return the ACL categories of a command, in Redis's order (setImplicitACLCategories)."""
    if entry.module:
        return [name for name in CATEGORIES if name in entry.categories.split()]
    found = set(_MORE_CATEGORIES.get(entry.fullname, "").split())
    if entry.subcommands is None and entry.group in _CATEGORY_OF_GROUP:
        found.add(_CATEGORY_OF_GROUP[entry.group])
    if entry.fullname.partition("|")[0] in ("command", "wait", "waitaof"):
        found.add("connection")
        found.discard("keyspace")
    if entry.fullname in _UNKNOWN_KEYS:
        found.discard("keyspace")  # SORT has the categories of the types that it sorts
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
    if entry.module:
        return (entry.access or "RW access update").split(";")
    return _ACCESS.get(entry.fullname, "RW" if entry.write else "RO").split(";")


# -- COMMAND INFO -----------------------------------------------------------------------------------


def _key_specs(entry: Command) -> ReplySet:
    """Return the key specifications: access flags, the position of the first key, and how to find the other keys."""
    access = _access(entry)
    first, last, step = entry.keys
    specs = ReplySet()
    for index, flags in enumerate(access):
        is_last = index == len(access) - 1
        begin: tuple[bytes, dict[bytes, Any]] = (b"index", {b"index": first + index})
        find: tuple[bytes, dict[bytes, Any]]
        if index and entry.fullname in _UNKNOWN_KEYS:
            begin = find = (b"unknown", {})
        elif entry.fullname in _KEYWORD_SEARCH:
            keyword, start = _KEYWORD_SEARCH[entry.fullname]
            begin = (b"keyword", {b"keyword": keyword, b"startfrom": start})
            find = (b"range", {b"lastkey": -1, b"keystep": 1, b"limit": 2})
        elif entry.fullname in _TARGETS and index:
            keyword, start = (b"STORE", b"STOREDIST")[index - 1], _TARGETS[entry.fullname]
            begin = (b"keyword", {b"keyword": keyword, b"startfrom": start})
            find = (b"range", {b"lastkey": 0, b"keystep": 1, b"limit": 0})
        elif entry.fullname in _UNKNOWN_KEYS:
            find = (b"range", {b"lastkey": 0, b"keystep": 1, b"limit": 0})
        elif isinstance(entry.get_keys, KeysAfterNumber) and is_last:
            begin = (b"index", {b"index": entry.get_keys.at})
            find = (b"keynum", {b"keynumidx": 0, b"firstkey": 1, b"keystep": entry.get_keys.step})
        else:
            span = last if last < 0 and is_last else 0 if len(access) > 1 else last - first
            find = (b"range", {b"lastkey": span, b"keystep": step, b"limit": 0})
        spec: dict[bytes, Any] = {b"flags": ReplySet(flags.split())}
        for name, (kind, numbers) in ((b"begin_search", begin), (b"find_keys", find)):
            spec[name] = {b"type": kind, b"spec": numbers}
        specs.append(spec)
    return specs


def _tips(entry: Command) -> list[bytes]:
    return (entry.tips if entry.module else _TIPS.get(entry.fullname, "")).encode().split()


def _info(entry: Command | None, compat: Compat) -> list[Any] | None:
    """Return the ten fields of a command in COMMAND INFO, None for an unknown one (server.c: addReplyCommandInfo)."""
    if entry is None:
        return None
    flags = set(entry.flags)
    if denies_oom(entry, compat):
        flags.add("denyoom")
    if entry.module:
        flags.add("module")
    return [
        entry.fullname.encode(), entry.arity, ReplySet(flag for flag in _FLAG_ORDER if flag in flags),
        *entry.keys, ReplySet("@" + name for name in categories(entry)), _tips(entry),
        _key_specs(entry), [_info(one, compat) for one in (entry.subcommands or {}).values()],
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
    write_tree(session.out, [_info(find_command(session.engine, name), compat) for name in argv[2:]])


@command("command|count", arity=2, flags="loading stale", since="2.8.13", complexity="O(1)")
def command_count(session: Session, argv: list[bytes]) -> None:
    """Count the commands."""
    session.out.integer(len(known_commands(session.engine)))


@command("command|list", arity=-2, flags="loading stale", since="7.0.0",
         syntax="[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]", complexity="O(N) for N commands")
def command_list(session: Session, argv: list[bytes]) -> None:
    """List the names of all commands, or of those that pass a filter."""
    compat = session.engine.settings.compat
    known = [entry for entry in all_commands(session.engine) if entry.known_to(compat)]
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
            names = [entry.fullname for entry in known if category in categories(entry)]
        elif kind == b"pattern":
            names = [name for name in names if compiled(wanted, True).matches(name.encode())]
        else:
            raise syntax_error()
    write_bulks(session.out, [name.encode() for name in names])


# -- COMMAND DOCS -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _arguments(syntax: str) -> list[command_syntax.Argument]:
    return command_syntax.parse(syntax)


def _describe_arguments(arguments: list[command_syntax.Argument], level: int) -> list[dict[bytes, Any]]:
    """Return the arguments of a command in COMMAND DOCS, without those newer than `level`."""
    described = []
    for one in arguments:
        if one.since and level_of(one.since) > level:
            continue
        fields: dict[bytes, Any] = {b"name": one.name.encode(), b"type": one.type.encode()}
        if one.type == "key":
            fields[b"key_spec_index"] = 0
        if one.token:
            fields[b"token"] = one.token.encode()
        if one.since:
            fields[b"since"] = one.since.encode()
        flags = ReplySet(name for name in ("optional", "multiple") if getattr(one, name))
        if flags:
            fields[b"flags"] = flags
        if one.arguments:
            fields[b"arguments"] = _describe_arguments(one.arguments, level)
        described.append(fields)
    return described


def _docs(entry: Command, compat: Compat) -> dict[bytes, Any]:
    """Return the documentation of a command, without parts that a server lacks (server.c: addReplyCommandDocs)."""
    texts = {
        b"summary": entry.summary, b"since": entry.since_in(compat), b"group": entry.group,
        b"complexity": entry.complexity,
    }  # fmt: skip
    docs: dict[bytes, Any] = {name: text.encode() for name, text in texts.items() if text or not entry.module}
    if entry.module:
        docs[b"module"] = entry.module.encode()
    arguments = _arguments(entry.syntax)
    if arguments:
        docs[b"arguments"] = _describe_arguments(arguments, compat.level)
    subcommands = [one for one in (entry.subcommands or {}).values() if one.known_to(compat)]
    if subcommands:
        docs[b"subcommands"] = {one.fullname.encode(): _docs(one, compat) for one in subcommands}
    return docs


@command("command|docs", arity=-2, flags="loading stale", since="7.0.0", syntax="[command-name [command-name ...]]",
         complexity="O(N) for N commands")
def command_docs(session: Session, argv: list[bytes]) -> None:
    """Return the documentation of the given commands, or of all commands."""
    compat = session.engine.settings.compat
    if len(argv) == 2:
        entries = known_commands(session.engine)
    else:
        named = (find_command(session.engine, name) for name in argv[2:])
        entries = [entry for entry in named if entry is not None]
    session.out.map(len(entries))
    for entry in entries:
        session.out.bulk(entry.fullname.encode())
        write_tree(session.out, _docs(entry, compat))


# -- COMMAND GETKEYS --------------------------------------------------------------------------------


def _find_keys(engine: Any, argv: list[bytes]) -> tuple[Command, list[int]]:
    """Return the command in argv[2:] and the positions of its keys in argv (getKeysSubcommandImpl)."""
    line, compat = argv[2:], engine.settings.compat
    entry = find_command(engine, line[0])
    if entry is not None and entry.subcommands is not None and len(line) > 1:
        entry = entry.subcommands.get(line[1].lower())
    if entry is None or not entry.known_to(compat):
        raise CommandError("Invalid command specified")
    if not _access(entry) or "not_key" in entry.flags:
        raise CommandError("The command has no key arguments")
    if not entry.accepts(len(line)):
        raise CommandError("Invalid number of arguments specified for command")
    positions = entry.key_positions(line)
    if not positions and "no_mandatory_keys" not in entry.flags:
        raise CommandError("Invalid arguments specified for command")
    return entry, [position + 2 for position in positions]


@command("command|getkeys", arity=-4, flags="loading stale", since="2.8.13", syntax="command [arg [arg ...]]",
         complexity="O(N) for N arguments")
def command_getkeys(session: Session, argv: list[bytes]) -> None:
    """Return the keys of a command line."""
    _, positions = _find_keys(session.engine, argv)
    write_bulks(session.out, [argv[position] for position in positions])


@command("command|getkeysandflags", arity=-4, flags="loading stale", since="7.0.0", syntax="command [arg [arg ...]]",
         complexity="O(N) for N arguments")
def command_getkeysandflags(session: Session, argv: list[bytes]) -> None:
    """Return the keys of a command line, and how the command accesses them."""
    entry, positions = _find_keys(session.engine, argv)
    access = _access(entry)
    if entry.fullname == "set":
        access = [_set_access(argv[2:])]
    write_tree(session.out, [
        [argv[position], ReplySet(access[min(index, len(access) - 1)].split())]
        for index, position in enumerate(positions)
    ])  # fmt: skip


def _set_access(line: list[bytes]) -> str:
    """Return how a SET accesses its key: SET without GET only overwrites the key (db.c: setGetKeys)."""
    return "RW access update" if any(word.lower() == b"get" for word in line[3:]) else "OW update"
