"""COMMAND: the table of commands as clients see it (Redis: server.c), generated from the declarations.

Client libraries read COMMAND once: for the positions of keys, and to find the commands that replicas may run.
Tables here add what the declarations do not contain: how a command accesses its keys, and the hints for proxies.
`command_docs.py` describes commands for COMMAND DOCS.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rillet.commands.arguments import arity_error, syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.replies import ReplySet, write_bulks, write_tree
from rillet.commands.server import command
from rillet.commands.server.info import all_commands, find_command, find_subcommand, known_commands
from rillet.errors import CommandError
from rillet.runtime.acl.providers import PROVIDERS
from rillet.runtime.admission import denies_oom
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.structs.glob import matches
from rillet.types.compat import Compat

_FLAG_ORDER = (
    "write", "readonly", "denyoom", "module", "admin", "pubsub", "noscript", "blocking", "loading", "stale",
    "skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "no_mandatory_keys", "no_async_loading", "no_multi",
    "movablekeys", "allow_busy",
    "script_runner",
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
    "swapdb": "keyspace dangerous", "migrate": "dangerous", "restore-asking": "keyspace dangerous",
    "trimslots": "keyspace dangerous", "clusterscan": "keyspace", "cluster|flushslot": "keyspace",
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
    RO access = eval_ro evalsha_ro fcall_ro dump digest expiretime get getrange lcs mget pexpiretime pttl rillet.xafter
        rillet.xnodes rillet.xrank
        getbit bitcount bitpos bitfield_ro
        arcount arget argetrange argrep arinfo arlastitems arlen armget arnext arop arscan
        geopos geohash geodist georadius_ro georadiusbymember_ro geosearch
        substr ttl xinfo|consumers xinfo|groups xinfo|stream xpending xrange xread xreadgroup xrevrange lindex
        lrange lpos smismember smembers srandmember sinter sunion sdiff sintercard sunioncard sdiffcard sscan hget
        httl hpttl hexpiretime hpexpiretime
        hgetall hkeys hmget hrandfield hscan hvals zscore zmscore zcount zlexcount zrank zrevrank zrange zrevrange
        zrangebyscore zrevrangebyscore zrangebylex zrevrangebylex zunion zinter zdiff zintercard zrandmember zscan
    RW access update = eval evalsha fcall hgetex increx setbit decr decrby getex getset incr incrby incrbyfloat move
         hincrby hincrbyfloat
        zincrby
    RW update = hexpire hpexpire hexpireat hpexpireat hpersist hsetex
        expire expireat pexpire pexpireat persist setrange xack xadd xcfgset xclaim xgroup|setid xidmprecord
        xsetid hset hmset zadd lset geoadd xnack
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
    OW update = mset msetex psetex setex restore restore-asking
    OW insert = msetnx setnx
    RM delete = del unlink delifeq
    RW access update variable_flags = set bitfield
    RO access;OW update = copy
    RO access;OW update;OW update = georadius georadiusbymember
    RO access;RO access;OW update = sort
    RO access;RO access = sort_ro
    RW access delete;OW update = rename
    RW access delete;OW insert = renamenx
    RW access delete;RW access delete incomplete = migrate
""")
# Commands whose first key specification is a position, while the keys of the others depend on data or options.
_UNKNOWN_KEYS = frozenset(("sort", "sort_ro"))
_KEYWORD_SEARCH = {"xread": (b"STREAMS", 1), "xreadgroup": (b"STREAMS", 4)}
# Commands whose further keys follow a word: the words, where the search starts, and the last key (0: one key).
_TARGETS = {
    "georadius": ((b"STORE", b"STOREDIST"), 6, 0), "georadiusbymember": ((b"STORE", b"STOREDIST"), 5, 0),
    "migrate": ((b"KEYS",), -2, -1),
}  # fmt: skip
# What the flags of a key specification do not say: command -> note for each specification.
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
_TIPS = _table("""
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
_VALKEY_ACCESS = {
    "hsetex": "RW insert",
    "georadius": "RO access;OW update variable_flags;OW update variable_flags",
    "georadiusbymember": "RO access;OW update variable_flags;OW update variable_flags",
}  # fmt: skip
# Flags that a command gains (+) or loses (-) in Redis since a level, and Valkey from its level 7.2 on.
_LATER_FLAGS = (
    (72, "-noscript", "blmove blpop brpop brpoplpush bzpopmax bzpopmin wait"), (74, "+blocking", "wait"),
    (72, "+loading", "cluster|shards cluster|slots"),
    (88, "+script_runner", "eval eval_ro evalsha evalsha_ro fcall fcall_ro"),
    (88, "+loading", "cluster|count-failure-reports cluster|info cluster|keyslot cluster|links cluster|myid "
                     "cluster|myshardid cluster|nodes cluster|replicas cluster|slaves"),
)  # fmt: skip
# The same for flags that Redis has, or lacks, until before a level.
_EARLIER_FLAGS = (
    (74, "-blocking", "waitaof"), (74, "+noscript", "waitaof"),
    (80, "+denyoom", "hexpire hexpireat hpexpire hpexpireat"),
)  # fmt: skip
_VALKEY_FLAGS = (
    ("+blocking", "wait"),
    ("+allow_busy", "client|caching client|capa client|getname client|getredir client|id client|no-evict "
                    "client|no-touch client|reply client|setinfo client|setname select"),
    ("+no_multi", "client|reply multi watch"),
    ("+loading", "memory|malloc-stats memory|purge cluster|info cluster|myid cluster|myshardid cluster|nodes"),
    ("+stale", "script|exists script|flush script|load script|show"),
)  # fmt: skip
_VALKEY_ARITY = {"cluster|replicate": -3, "script|debug": -3}


@lru_cache(maxsize=8)
def _flag_changes(compat: Compat) -> dict[str, list[str]]:
    """Return the flags that commands gain and lose in a server, each with its sign."""
    changes: dict[str, list[str]] = {}
    rows = [(change, names) for level, change, names in _LATER_FLAGS if compat.knows(level)]
    if not compat.valkey:
        rows += [(change, names) for level, change, names in _EARLIER_FLAGS if not compat.knows(level)]
    for change, names in (*rows, *(_VALKEY_FLAGS if compat.valkey else ())):
        for name in names.split():
            changes.setdefault(name, []).append(change)
    return changes


def flags_in(entry: Command, compat: Compat) -> set[str]:
    """Return the flags of a command in a server (the JSON tables of its version)."""
    flags = set(entry.flags)
    for change in _flag_changes(compat).get(entry.fullname, ()):
        (flags.add if change[0] == "+" else flags.discard)(change[1:])
    return flags


def _arity(entry: Command, compat: Compat) -> int:
    """Return the arity that a server shows."""
    if compat.valkey and entry.fullname in _VALKEY_ARITY:
        return _VALKEY_ARITY[entry.fullname]
    return entry.arity_in(compat)


def category_names(compat: Compat) -> tuple[str, ...]:
    """Return the names of all categories that a server has, in Redis's order."""
    return tuple(name for name in CATEGORIES if name != "array" or compat.knows(88))


def categories(entry: Command, compat: Compat) -> list[str]:
    """Return the ACL categories of a command, in Redis's order (setImplicitACLCategories)."""
    if entry.module:
        return [name for name in CATEGORIES if name in entry.categories.split()]
    found = set(_MORE_CATEGORIES.get(entry.fullname, "").split())
    if entry.subcommands is None and entry.group in _CATEGORY_OF_GROUP:
        found.add(_CATEGORY_OF_GROUP[entry.group])
    if entry.fullname.partition("|")[0] in ("command", "wait", "waitaof", "asking", "readonly", "readwrite"):
        found.add("connection")
        found.discard("keyspace")
    if entry.fullname in _UNKNOWN_KEYS:
        found.discard("keyspace")  # SORT has the categories of the types that it sorts
    flags = flags_in(entry, compat)
    found |= flags & {"write", "fast", "blocking", "pubsub"}
    if "readonly" in flags and entry.group != "scripting":
        found.add("read")
    if "admin" in flags:
        found |= {"admin", "dangerous"}
    if "fast" not in flags:
        found.add("slow")
    return [name for name in CATEGORIES if name in found]


def _access(entry: Command, compat: Compat | None = None) -> list[str]:
    """Return the flags of each key specification of a command."""
    if not entry.keys[0] and entry.get_keys is None:
        return []
    if "not_key" in entry.flags:
        return ["not_key"]
    if entry.module:
        return (entry.access or "RW access update").split(";")
    if compat is not None and compat.valkey and entry.fullname in _VALKEY_ACCESS:
        return _VALKEY_ACCESS[entry.fullname].split(";")
    if compat is not None and entry.fullname == "sinterstore" and (compat.knows(74) or compat.valkey):
        return ["OW update", "RO access"]
    return _ACCESS.get(entry.fullname, "RW" if entry.write else "RO").split(";")


# -- COMMAND INFO -----------------------------------------------------------------------------------


def _key_specs(entry: Command, compat: Compat) -> ReplySet:
    """Return the key specifications: access flags, the position of the first key, and how to find the other keys."""
    access, notes = _access(entry, compat), _NOTES.get(entry.fullname, ())
    if entry.fullname == "hgetex" and compat.valkey:
        notes = ()
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
            keywords, start, end = _TARGETS[entry.fullname]
            begin = (b"keyword", {b"keyword": keywords[index - 1], b"startfrom": start})
            find = (b"range", {b"lastkey": end, b"keystep": 1, b"limit": 0})
        elif entry.fullname in _UNKNOWN_KEYS:
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
        named = (find_command(session.engine, name) for name in argv[2:])
        entries = [entry for entry in named if entry is not None]
    write_docs(session.out, entries, session.engine.settings.compat)


# -- COMMAND GETKEYS --------------------------------------------------------------------------------


def _find_keys(engine: Any, argv: list[bytes]) -> tuple[Command, list[int]]:
    """Return the command in argv[2:] and the positions of its keys in argv (getKeysSubcommandImpl)."""
    line, compat = argv[2:], engine.settings.compat
    if len(line) < 2 and not compat.knows(72):
        raise arity_error(f"command|{argv[1].lower().decode()}")
    entry = find_subcommand(engine, line)
    if entry is None:
        raise CommandError("Invalid command specified")
    if not _access(entry) or "not_key" in entry.flags:
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
    access = _call_access(entry, argv[2:], session.engine.settings.compat)
    write_tree(session.out, [
        [argv[position], ReplySet(flag for flag in access[min(index, len(access) - 1)].split() if flag not in _HINTS)]
        for index, position in enumerate(positions)
    ])  # fmt: skip


_HINTS = ("variable_flags", "incomplete")  # they describe the specification, not a key


def _call_access(entry: Command, line: list[bytes], compat: Compat) -> list[str]:
    """Return how a call accesses its first key and each of the others; options may decide that (db.c: setGetKeys)."""
    access = _access(entry, compat)
    compares = any(word.lower() in (b"ifeq", b"ifne", b"ifdeq", b"ifdne") for word in line[2:])
    if entry.fullname == "set":
        if any(word.lower() == b"get" for word in line[3:]):
            return ["RW access update"]
        return ["RW update" if compares and compat.knows(84) else "OW update"]
    if entry.fullname == "delex":
        return ["RW delete" if compares else "RM delete"]
    if entry.fullname == "bitfield":
        writes = any(word.lower() in (b"set", b"incrby") for word in line[2:])
        return ["RW access update" if writes else "RO access"]
    if entry.fullname in ("sort", *_TARGETS):
        return [access[0], access[-1]]
    return access


def key_access(entry: Command, line: list[bytes], compat: Compat) -> list[tuple[int, str]]:
    """Return the position of each key of a call, and the flags of its access."""
    positions = entry.key_positions(line)
    access = _call_access(entry, line, compat) if positions else []
    return [(position, access[min(index, len(access) - 1)]) for index, position in enumerate(positions) if access]


PROVIDERS.category_names, PROVIDERS.categories, PROVIDERS.accesses = category_names, categories, _access
