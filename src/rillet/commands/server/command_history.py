"""Changes of commands, as COMMAND DOCS lists them: the versions are the servers', the texts are rillet's.

    =command
    6.2.0 text        in Redis from 7.0 on that is not older than the version, and in Valkey up to 7.2
    n 6.2.0 text      only in lists since 7.4, and in Valkey: the older tables lack it
    l 7.2.0 text      only in lists of Redis since 8.0
    r 8.4.0 text      only in Redis
    v 9.0.0 text      only in Valkey, and the version is Valkey's
"""

from __future__ import annotations

from functools import lru_cache

from rillet.types.compat import Compat, level_of

_HISTORY = """\
=acl|getuser
6.2.0 shows patterns of channels
7.0.0 shows selectors; patterns of keys and channels are rules instead of lists
v 9.1.0 shows rules of databases
=acl|log
7.2.0 entries have an ID and two timestamps
=acl|setuser
6.2.0 patterns of channels
7.0.0 selectors, and permissions to read or write keys
v 9.1.0 rules of databases
=auth
6.0.0 accepts a username
=bgsave
3.2.2 option SCHEDULE
v 8.1.0 option CANCEL
=bitcount
7.0.0 options BYTE and BIT
v 8.0.0 `end` may be absent: the last byte
=bitpos
7.0.0 options BYTE and BIT
=blpop
6.0.0 `timeout` may have a fraction
=brpop
6.0.0 `timeout` may have a fraction
=brpoplpush
6.0.0 `timeout` may have a fraction
=bzpopmax
6.0.0 `timeout` may have a fraction
=bzpopmin
6.0.0 `timeout` may have a fraction
=client|kill
2.8.12 filters
2.8.12 filter ID
3.2.0 type MASTER
5.0.0 type REPLICA, with SLAVE as its older name
6.2.0 filter LADDR
v 8.0.0 filter MAXAGE
r 7.4.0 filter MAXAGE
v 8.0.0 type PRIMARY, with MASTER as its older name
v 8.1.0 several IDs
v 9.0.0 filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA and IP, and all filters with NOT-
=client|list
2.8.12 field `id`
5.0.0 filter TYPE
6.0.0 field `user`
6.2.0 fields `argv-mem`, `tot-mem`, `laddr` and `redir`; filter ID
7.0.0 fields `resp`, `multi-mem`, `rbs` and `rbp`
7.0.3 field `ssub`
l 7.2.0 fields `lib-name` and `lib-ver`
l 7.4.0 field `watch`
r 8.0.0 field `io-thread`
v 8.0.0 type PRIMARY, with MASTER as its older name
v 8.1.0 filters USER, ADDR, LADDR, SKIPME and MAXAGE
v 9.0.0 filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA and IP, and all filters with NOT-
=client|pause
6.2.0 modes WRITE and ALL
=cluster|count-failure-reports
v 9.0.0 does not count reports about a node that has failed already
=cluster|meet
4.0.0 argument for the port of the cluster bus
=cluster|replicate
v 9.0.0 NO ONE detaches a replica
=cluster|setslot
v 8.0.0 option TIMEOUT
=cluster|shards
v 9.1.0 shards have an `id`, nodes an `availability-zone`
=cluster|slots
4.0.0 shows IDs of nodes
7.0.0 shows hostnames and other metadata
v 9.1.0 the metadata contain the `availability-zone`
=command|info
7.0.0 without names: all commands
=config|get
7.0.0 several patterns
=config|set
7.0.0 several settings
=exists
3.0.3 several keys
=expire
7.0.0 options NX, XX, GT and LT
=expireat
7.0.0 options NX, XX, GT and LT
=flushall
4.0.0 option ASYNC
6.2.0 option SYNC
=flushdb
4.0.0 option ASYNC
6.2.0 option SYNC
=geoadd
6.2.0 options CH, NX and XX
=georadius
6.2.0 ANY after COUNT
7.0.0 units in upper case
=georadius_ro
6.2.0 ANY after COUNT
n 7.0.0 units in upper case
=georadiusbymember
n 6.2.0 ANY after COUNT
7.0.0 units in upper case
=georadiusbymember_ro
n 6.2.0 ANY after COUNT
n 7.0.0 units in upper case
=geosearch
7.0.0 units in upper case
v 9.0.0 option BYPOLYGON
=geosearchstore
7.0.0 units in upper case
v 9.0.0 option BYPOLYGON
=hdel
2.4.0 several fields
=hello
v 8.1.0 shows the setting `availability-zone` if it is set
6.2.0 the version may be absent: only shows the connection
=hset
4.0.0 several fields
=info
7.0.0 several sections
=lpop
6.2.0 argument `count`
=lpush
2.4.0 several elements
=lpushx
4.0.0 several elements
=migrate
3.0.0 options COPY and REPLACE
3.0.6 option KEYS
4.0.7 option AUTH
6.0.0 option AUTH2
=pexpire
7.0.0 options NX, XX, GT and LT
=pexpireat
7.0.0 options NX, XX, GT and LT
=pttl
2.8.0 replies -2 for a missing key
=renamenx
3.2.0 both names may be equal
=restore
3.0.0 option REPLACE
5.0.0 option ABSTTL
5.0.0 options IDLETIME and FREQ
=restore-asking
3.0.0 option REPLACE
5.0.0 option ABSTTL
5.0.0 options IDLETIME and FREQ
=rpop
6.2.0 argument `count`
=rpush
2.4.0 several elements
=rpushx
4.0.0 several elements
=sadd
2.4.0 several members
=scan
6.0.0 option TYPE
=script|flush
6.2.0 options ASYNC and SYNC
=set
2.6.12 options EX, PX, NX and XX
6.0.0 option KEEPTTL
6.2.0 options GET, EXAT and PXAT
7.0.0 NX and GET in one call
v 8.1.0 option IFEQ
r 8.4.0 options IFEQ, IFNE, IFDEQ and IFDNE
=shutdown
7.0.0 options NOW, FORCE and ABORT
v 9.0.0 options SAFE and FAILOVER
=slowlog|get
4.0.0 entries have the address and the name of the client
=spop
3.2.0 argument `count`
=srandmember
2.6.0 argument `count`
=srem
2.4.0 several members
=ttl
2.8.0 replies -2 for a missing key
=xadd
6.2.0 options NOMKSTREAM, MINID and LIMIT
7.0.0 IDs of the form `<ms>-*`
r 8.2.0 options KEEPREF, DELREF and ACKED
=xautoclaim
7.0.0 replies with the IDs of pending entries that no longer exist
=xgroup|create
7.0.0 option ENTRIESREAD
=xgroup|setid
7.0.0 option ENTRIESREAD
=xinfo|consumers
7.2.0 field `inactive`; `idle` counts from the last attempt
=xinfo|groups
7.0.0 fields `entries-read` and `lag`
=xinfo|stream
6.0.0 option FULL
7.0.0 fields `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag`
7.2.0 field `active-time`; `seen-time` is the last attempt
r 8.6.0 fields `idmp-duration`, `idmp-maxsize`, `pids-tracked`, `iids-tracked`, `iids-added` and `iids-duplicates`
r 8.8.0 field `nacked-count` with FULL
=xpending
6.2.0 option IDLE; ranges that exclude an end
=xrange
6.2.0 ranges that exclude an end
=xrevrange
6.2.0 ranges that exclude an end
=xsetid
7.0.0 options ENTRIESADDED and MAXDELETEDID
=xtrim
6.2.0 options MINID and LIMIT
r 8.2.0 options KEEPREF, DELREF and ACKED
=zadd
2.4.0 several members
3.0.2 options XX, NX, CH and INCR
6.2.0 options GT and LT
=zinter
r 8.8.0 AGGREGATE COUNT
=zinterstore
r 8.8.0 AGGREGATE COUNT
=zrange
6.2.0 options REV, BYSCORE, BYLEX and LIMIT
=zrangebyscore
2.0.0 option WITHSCORES
=zrank
7.2.0 option WITHSCORE
=zrem
2.4.0 several members
=zrevrangebyscore
2.1.6 `min` and `max` may be excluded
=zrevrank
7.2.0 option WITHSCORE
=zscan
v 8.0.0 option NOSCORES
=zunion
r 8.8.0 AGGREGATE COUNT
=zunionstore
r 8.8.0 AGGREGATE COUNT
"""


@lru_cache(maxsize=1)
def _table() -> dict[str, list[tuple[str, str, str]]]:
    """Return the changes by command: the selector, the version, the text."""
    table: dict[str, list[tuple[str, str, str]]] = {}
    changes: list[tuple[str, str, str]] = []
    for line in _HISTORY.splitlines():
        if line.startswith("="):
            changes = table[line[1:]] = []
            continue
        selector, rest = (line[0], line[2:]) if line[0].isalpha() else ("", line)
        version, _, text = rest.partition(" ")
        changes.append((selector, version, text))
    return table


def history_of(name: str, compat: Compat) -> list[list[bytes]]:
    """Return the changes of a command in a server, as pairs of version and text."""
    return [
        [version.encode(), text.encode()]
        for selector, version, text in _table().get(name, ())
        if (compat.valkey if selector == "v" else _lists(selector, version, compat))
    ]


def _lists(selector: str, version: str, compat: Compat) -> bool:
    if selector == "n" and not (compat.knows(74) or compat.valkey):
        return False
    if (selector in ("r", "l") and compat.valkey) or (selector == "l" and not compat.knows(80)):
        return False
    return compat.knows(level_of(version))
