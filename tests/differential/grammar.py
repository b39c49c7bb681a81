"""Random calls of every command by the trees of arguments that the servers publish, most of them then spoilt.

    tree of a server (argument_trees.py)  ->  [EX:seconds | KEEPTTL] key...  ->  EX 100000 a b  ->  a EX 100000 EX b

An older server gets the options of the newest one, too, and of Valkey: each must refuse what it does not know, with its
own text. Both sides have the same few values of every type. A call that fails must fail with the same bytes; one that
succeeds must have the same reply, and leave the same data (DEBUG DIGEST).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from rillet.commands.server.argument_trees import DocumentedArgument, arguments_of
from rillet.runtime.engine import Engine
from rillet.runtime.registry import TABLE, Command, load_commands
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS, Compat
from tests.differential.wire import Local, Redis

# What stops, blocks or leaves the server or the connection, reaches other servers, or changes data by chance.
LEFT_OUT = frozenset("""
    acl|load acl|save acl|setuser acl|deluser auth bgrewriteaof bgsave blmove blmpop blpop brpop brpoplpush bzmpop
    bzpopmax bzpopmin client|kill client|pause client|reply config|rewrite config|set debug eval eval_ro evalsha
    evalsha_ro exec failover hello hotkeys|start hotkeys|stop latency|doctor lolwut migrate module|load module|loadex
    module|unload monitor multi pfdebug pfselftest psubscribe psync punsubscribe quit replconf replicaof reset save
    script|debug select shutdown slaveof spop ssubscribe subscribe sunsubscribe swapdb sync trimslots unsubscribe wait
    waitaof watch xcfgset xidmprecord lmovem
""".split())
# Replies that depend on the clock, on chance, or on the server: only errors and the kinds of replies are compared.
VAGUE = frozenset("""
    dump expiretime hexpiretime hpexpiretime hpttl hrandfield httl info lastsave object|freq object|idletime
    object|refcount pexpiretime pttl randomkey restore scan script|show srandmember sscan time ttl xadd xinfo|consumers
    xinfo|groups xinfo|stream xpending zrandmember
""".split())
UNORDERED = frozenset(
    "hgetall hkeys hscan hvals keys sdiff sinter smembers sort sort_ro sunion zscan acl|cat".split()
)
GROUPS = frozenset("array bitmap generic geo hash hyperloglog list set sorted-set stream string".split())
"""The groups of commands whose replies are compared; of the others, only errors and the kinds of replies are."""
SPARED_WORDS = frozenset((b"BLOCK", b"MAXCOUNT", b"MAXSIZE"))
"""Words that wait, or that are newer than the newest tested server."""

KEYS = {
    "array": (b"a1", b"a2"), "bitmap": (b"str1", b"num"), "geo": (b"geo1",), "hash": (b"h1", b"h2"),
    "hyperloglog": (b"hll1",), "list": (b"l1", b"l2"), "set": (b"s1", b"s2"), "sorted-set": (b"z1", b"z2"),
    "stream": (b"st1", b"st2"), "string": (b"str1", b"num"),
}  # fmt: skip
EVERY_KEY = (*(key for keys in KEYS.values() for key in keys), b"missing")
SEED = """
    SET str1 hello   SET num 17   RPUSH l1 a b c a   RPUSH l2 3 1 2   SADD s1 a b c   SADD s2 1 2 3
    ZADD z1 1 a 2 b 3 c   ZADD z2 1 b 5 d   HSET h1 a 1 b 2 c 3   HSET h2 a x   PFADD hll1 a b c
    GEOADD geo1 13.361389 38.115556 a 15.087269 37.502669 b   XADD st1 1-1 a 1   XADD st1 2-1 a 2   XADD st1 3-1 b 3
    XADD st2 5-5 a 1   XGROUP CREATE st1 g 0   XGROUP CREATE st1 g2 $   XREADGROUP GROUP g c COUNT 2 STREAMS st1 >
    EXPIRE num 1000000
"""
RESET = ("RESET", "FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH", "ACL LOG RESET", "DEBUG SET-ACTIVE-EXPIRE 0")

SMALL = (b"1", b"2", b"3", b"0", b"10")
FIELDS = (b"a", b"b", b"c", b"d")
IDS = (b"1-1", b"2-1", b"3-1", b"0", b"5-5", b"4-0", b"2")
RELATIVE = {"seconds": 1, "ttl": 1000, "milliseconds": 1000}
CONTENTS = (b"1", b"2", b"hello", b"x", b"2.5")
VALUES: dict[str, tuple[bytes, ...]] = {
    **dict.fromkeys(("field", "member", "member1", "member2", "element", "pivot"), FIELDS),
    **dict.fromkeys(("value", "increment", "decrement", "integer", "float", "lowerbound", "upperbound"), CONTENTS),
    "unix-time-seconds": (b"4000000000", b"4000000001"), "unix-time-milliseconds": (b"4000000000000", b"4000000000001"),
    **dict.fromkeys(("id", "start", "end", "last-id", "lastid", "max-deleted-id", "max_deleted_entry_id"), IDS),
    **dict.fromkeys(("group", "groupname"), (b"g", b"g", b"g2", b"nogroup")),
    **dict.fromkeys(("consumer", "consumername"), (b"c", b"c", b"d")),
    **dict.fromkeys(("min-idle-time", "ms"), (b"0", b"0", b"100000000")),
    "threshold": (b"2", b"1", b"2-1", b"100"), "cursor": (b"0",), "type": (b"string", b"hash", b"nosuch"),
    "pattern": (b"*", b"a*", b"[bc]"), "by-pattern": (b"w_*", b"nosort", b"h*->a"), "get-pattern": (b"#", b"w_*"),
    **dict.fromkeys(("longitude", "latitude"), (b"13", b"15.5")),
    **dict.fromkeys(("radius", "width", "height"), (b"100", b"500.5")), "encoding": (b"u8", b"i16", b"u63", b"u64"),
    "score": (b"1", b"2.5", b"inf"), "weight": (b"2", b"0.5"), "min": (b"-inf", b"1", b"(1", b"[a", b"-"),
    "max": (b"+inf", b"3", b"(3", b"[c", b"+"), "operation": (b"AND", b"OR", b"NOT", b"XOR", b"DIFF", b"ONE"),
    **dict.fromkeys(("pid", "iid"), (b"p1", b"m1")), "parameter": (b"maxmemory", b"hz", b"stream-*", b"nosuch"),
    **dict.fromkeys(("command", "command-name"), (b"get", b"xadd", b"nosuch", b"config|get", b"acl")),
    **dict.fromkeys(("category", "categoryname"), (b"read", b"stream", b"nosuch")), "username": (b"default", b"nobody"),
    **dict.fromkeys(("destination-db", "db"), (b"0", b"0", b"1", b"99")), "arg": (b"a", b"b", b"str1"),
    "libname": (b"lib",), "libver": (b"1.0",), "comparison-value": (b"hello", b"17"),
    **dict.fromkeys(("ifeq-value", "ifne-value"), (b"hello", b"17")),
    **dict.fromkeys(("ifdeq-digest", "ifdne-digest"), (b"0123456789abcdef", b"b6acb9d84a38ff74")),
    "not-client-id": (b"99999",), "client-id": (b"99999",), "section": (b"server", b"nosuch"),
    "index": (b"0", b"1", b"-1"), "stop": (b"-1", b"2"), "bit": (b"1", b"0"), "bits": (b"5", b"256"),
    "rank": (b"1", b"-1"), "min-match-len": (b"1", b"4"), "offset": (b"0", b"3", b"#1"), "entries_read": (b"1",),
    "entriesread": (b"1",), "function": (b"f",),
    "function-code": (b"x", b"#!lua name=l\nredis.register_function('f', function() end)"),
}  # fmt: skip
"""Values by the name of the argument, mostly sensible."""
JUNK = (b"", b"x", b"-1", b"0", b"1", b"2", b"1.5", b"9223372036854775807", b"9223372036854775808", b"\xff\x00", b"*",
        b"FIELDS", b"COUNT", b"LIMIT", b"nan", b"=", b"~")  # fmt: skip


@dataclass
class Difference:
    """A call with different replies, or different data after it."""

    argv: list[bytes]
    ours: bytes
    theirs: bytes
    step: int


class Generator:
    """Calls of the commands that any server has, for one server."""

    def __init__(self, seed: int, compat: Compat, names: list[str] | None = None) -> None:
        load_commands()
        self.random = random.Random(seed)
        self.compat = compat
        every = (one for entry in TABLE for one in (entry, *(entry.subcommands or {}).values()))
        self.commands = [
            one for one in every
            if one.subcommands is None and not one.name.startswith("rillet.") and one.fullname not in LEFT_OUT
            and not one.fullname.startswith("cluster|") and (names is None or one.fullname in names)
            and (one.known_to(compat) or one.group in GROUPS)
        ]  # fmt: skip
        self.trees = [COMPATS[name] for name in ("newest", "valkey", compat.name, compat.name)]

    def chance(self, probability: float) -> bool:
        """Return whether something of that probability happens."""
        return self.random.random() < probability

    def next(self) -> tuple[Command, list[bytes]]:
        """Return the next command and its call."""
        entry = self.random.choice(self.commands)
        name = entry.fullname.upper().encode().split(b"|")
        tree = arguments_of(entry.fullname, self.random.choice(self.trees)) or []
        words = self.sequence(tree, entry)
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 3))):
            self.spoil(words, tree)
        return entry, [*name, *(word for word in words if word.upper() not in SPARED_WORDS)]

    # -- a call by the tree ----------------------------------------------------------------------------

    def sequence(self, arguments: list[DocumentedArgument], entry: Command) -> list[bytes]:
        """Return the words of arguments; a number of keys, fields or IDs is that of the arguments after it."""
        words: list[bytes] = []
        counted = -1
        repeats = self.random.choice((1, 1, 2, 3))
        for one in arguments:
            if one.optional and self.chance(0.55):
                continue
            times = repeats if one.multiple else 1
            if one.name in ("numkeys", "numfields", "numids"):
                counted = len(words) + (one.token is not None)
            for at in range(times):
                if one.token is not None and one.type != "pure-token" and (at == 0 or one.multiple_token):
                    words.append(self.cased(one.token.encode()))
                words += self.one(one, entry)
            if counted >= 0 and (one.multiple or one.type in ("key", "block")):
                words[counted] = b"%d" % (times if self.chance(0.92) else times + self.random.choice((-1, 1)))
                counted = -1
        return words

    def one(self, argument: DocumentedArgument, entry: Command) -> list[bytes]:
        """Return the words of one argument without its token."""
        if argument.type == "pure-token":
            return [self.cased((argument.token or argument.name).encode())]
        if argument.type == "oneof":
            return self.sequence([self.random.choice(argument.arguments)], entry)
        if argument.type == "block":
            return self.sequence(argument.arguments, entry)
        if argument.type == "key":
            own = KEYS.get(entry.group, EVERY_KEY)
            return [self.random.choice(own if self.chance(0.85) else EVERY_KEY)]
        if argument.name in RELATIVE:  # the same one twice would be the same time on one side only
            return [b"%d" % (self.random.randrange(10**5, 10**7) * RELATIVE[argument.name])]
        if entry.group != "stream" and argument.name in ("start", "end", "stop"):
            return [self.random.choice((*SMALL, b"-1", b"(1", b"[a", b"-", b"+"))]
        if entry.fullname == "xadd" and argument.name == "id":
            return [self.random.choice((b"*", b"9-1", b"9-*", b"1-1", b"0-0", b"x"))]
        return [self.random.choice(VALUES.get(argument.name, SMALL))]

    def cased(self, word: bytes) -> bytes:
        """Return a word in capitals, at times in small letters."""
        return word.lower() if self.chance(0.15) else word

    # -- spoiling --------------------------------------------------------------------------------------

    def spoil(self, words: list[bytes], tree: list[DocumentedArgument]) -> None:
        """Remove, repeat, exchange, replace or insert a word."""
        at = self.random.randrange(len(words) + 1)
        kind = self.random.randrange(6)
        if kind == 5:
            words.insert(at, self.random.choice(JUNK))
        elif kind == 4:
            option = self.random.choice(list(_tokens(tree)) or [b"x"])
            words[at:at] = [self.cased(option), *([self.random.choice(SMALL)] if self.chance(0.3) else [])]
        elif at == len(words):
            return
        elif kind == 0:
            del words[at]
        elif kind == 1:
            words.insert(self.random.randrange(len(words) + 1), words[at])
        elif kind == 2:
            other = self.random.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = self.random.choice(JUNK)


def _tokens(arguments: list[DocumentedArgument]) -> Iterator[bytes]:
    for one in arguments:
        if one.token is not None:
            yield one.token.encode()
        yield from _tokens(one.arguments)


DIGEST = [b"DEBUG", b"DIGEST"]
BATCH = 40


class Pair:
    """An engine and a real server that get the same batches of commands."""

    def __init__(self, redis: Redis, compat: str, door: bool) -> None:
        self.redis = redis
        self.local = Local(Engine(Settings(enable_debug_command="yes", compat=compat)), door=door)
        self.start = [line.strip().encode().split() for line in [*RESET, *_seed_lines()]]

    def run(self, commands: list[list[bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Yield our reply and theirs to each command, on the same few values; their replies come in one write."""
        theirs = self.redis.run(*self.start, *commands)[len(self.start) :]
        for argv in self.start:
            self.local.run(argv)
        for argv, their in zip(commands, theirs, strict=True):
            yield self.local.run(argv), their


def _seed_lines() -> list[str]:
    return [part for line in SEED.splitlines() for part in line.split("   ") if part.strip()]


def comparable(entry: Command, reply: bytes) -> object:
    """Return what must be equal of a reply."""
    if reply[:1] == b"-":
        return reply
    if entry.fullname in VAGUE or entry.group not in GROUPS:
        return reply[:1]
    return sorted(reply.split(b"\r\n")) if entry.fullname in UNORDERED else reply


def _stores_ties(argv: list[bytes]) -> bool:
    """Return whether a SORT by texts is stored: equal texts keep the order in which a hashtable has the elements."""
    return argv[0] == b"SORT" and {b"BY", b"ALPHA", b"STORE"} <= {word.upper() for word in argv[2:]}


def differences(
    redis: Redis, compat: str, seed: int, steps: int, names: list[str] | None = None
) -> Iterator[Difference]:
    """Yield the calls that differ among `steps` random ones; every second seed takes the fast paths.

    After a difference, the data of the two sides may differ, so the rest of the batch is not compared.
    """
    pair = Pair(redis, compat, seed % 2 == 1)
    maker = Generator(seed, COMPATS[compat], names)
    for begin in range(0, steps, BATCH):
        calls = [maker.next() for _ in range(min(BATCH, steps - begin))]
        replies = pair.run([argv for _, call in calls for argv in (call, DIGEST)])
        for (entry, argv), (ours, theirs), digests in zip(calls, replies, replies, strict=True):
            if comparable(entry, ours) != comparable(entry, theirs):
                yield Difference(argv, ours, theirs, begin)
                break
            if digests[0] != digests[1]:
                if entry.fullname not in VAGUE and not _stores_ties(argv):
                    yield Difference(argv, *digests, begin)
                break
    pair.local.engine.check()
