"""Key specifications: how a command accesses its keys, which the declarations of `registry.py` do not contain.

    RW access update    the key is read and written; the call uses data of the value, and changes data
    │  └─ access, insert, update, delete: what happens to the user's data. None of them: only to the key or its metadata
    └─ RO reads, RW reads and writes, OW overwrites, RM removes the key

The words are those of COMMAND INFO. Access control, COMMAND GETKEYSANDFLAGS, the filter of a replication stream and
attached stores read them. The flags of a few commands depend on their options (Redis: variable_flags).
"""

from __future__ import annotations

from rillet.runtime.registry import Command
from rillet.types.compat import Compat


def table_of(text: str) -> dict[str, str]:
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
_ACCESS = table_of("""
    RO access = eval_ro evalsha_ro fcall_ro dump digest expiretime get getrange lcs mget pexpiretime pttl rillet.xafter
        rillet.xcount rillet.xinfo rillet.xnodes rillet.xrank rillet.xsegments
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
        expire expireat pexpire pexpireat persist setrange rillet.xretain xack xadd xcfgset xclaim xgroup|setid
        xidmprecord xsetid hset hmset zadd lset geoadd xnack
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
_VALKEY_ACCESS = {
    "hsetex": "RW insert",
    "georadius": "RO access;OW update variable_flags;OW update variable_flags",
    "georadiusbymember": "RO access;OW update variable_flags;OW update variable_flags",
}  # fmt: skip
# Commands whose first key specification is a position, while the keys of the others depend on data or options.
UNKNOWN_KEYS = frozenset(("sort", "sort_ro"))
# Commands whose keys follow a word: the word, and where the search for it starts.
KEYWORD_SEARCH = {"xread": (b"STREAMS", 1), "xreadgroup": (b"STREAMS", 4)}
# Commands whose further keys follow a word: the words, where the search starts, and the last key (0: one key).
TARGETS = {
    "georadius": ((b"STORE", b"STOREDIST"), 6, 0), "georadiusbymember": ((b"STORE", b"STOREDIST"), 5, 0),
    "migrate": ((b"KEYS",), -2, -1),
}  # fmt: skip
# Commands whose access depends on options: the number of words from which on a call has some.
OPTIONS_FROM = {"set": 4, "delex": 3, "bitfield": 3}


def specification_flags(entry: Command, compat: Compat) -> list[str]:
    """Return the flags of each key specification of a command."""
    if not entry.keys[0] and entry.get_keys is None:
        return []
    if "not_key" in entry.flags:
        return ["not_key"]
    if entry.module:
        return (entry.access or "RW access update").split(";")
    if compat.valkey and entry.fullname in _VALKEY_ACCESS:
        return _VALKEY_ACCESS[entry.fullname].split(";")
    if entry.fullname == "sinterstore" and (compat.knows(74) or compat.valkey):
        return ["OW update", "RO access"]
    return _ACCESS.get(entry.fullname, "RW" if entry.write else "RO").split(";")


def call_flags(entry: Command, line: list[bytes], compat: Compat) -> list[str]:
    """Return how a call accesses its first key and each of the others; options may decide that (db.c: setGetKeys)."""
    name, access = entry.fullname, specification_flags(entry, compat)
    if name == "set":
        if any(word.lower() == b"get" for word in line[3:]):
            return ["RW access update"]
        return ["RW update" if compat.knows(84) and _compares(line) else "OW update"]
    if name == "delex":
        return ["RW delete" if _compares(line) else "RM delete"]
    if name == "bitfield":
        return ["RO access" if _only_gets(line) else "RW access update"]
    if name in ("sort", *TARGETS):
        return [access[0], access[-1]]
    return access


def _compares(line: list[bytes]) -> bool:
    """Return whether a SET or DELEX depends on the value."""
    return any(word.lower() in (b"ifeq", b"ifne", b"ifdeq", b"ifdne") for word in line[2:])


def _only_gets(line: list[bytes]) -> bool:
    """Return whether all operations of a BITFIELD are GET (db.c: bitfieldGetKeys)."""
    at = 2
    while at < len(line):
        word, left = line[at].lower(), len(line) - at - 1
        if word == b"get" and left >= 2:
            at += 3
        elif word == b"overflow" and left >= 1:
            at += 2
        else:
            return False
    return True


def key_access(entry: Command, line: list[bytes], compat: Compat) -> list[tuple[int, str]]:
    """Return the position of each key of a call, and the flags of its access."""
    positions = entry.key_positions(line)
    access = call_flags(entry, line, compat) if positions else []
    return [(position, access[min(index, len(access) - 1)]) for index, position in enumerate(positions) if access]
