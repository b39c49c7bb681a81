"""The commands, grouped as Redis groups them: one package for each group, one declaration for each command.

A handler registers its declaration with `runtime.registry` when its module is imported. That is when a command is first
called, or when somebody lists the commands: an application uses few of them.
"""

from __future__ import annotations

from importlib import import_module

MODULES = {
    "connection.auth": "auth hello",
    "connection.connection": "quit reset echo select",
    "connection.ping": "ping",
    "connection.client": "client",
    "connection.tracking": "client",
    "connection.client_admin": "client",
    "connection.monitor": "monitor",
    "connection.transactions": "multi discard exec watch unwatch",
    "keys.delete": "del unlink flushdb flushall",
    "keys.lookup": "exists touch type dbsize",
    "keys.scan": "keys randomkey scan",
    "keys.copy": "rename renamenx copy move swapdb",
    "keys.expire": "expire pexpire expireat pexpireat ttl pttl expiretime pexpiretime persist",
    "keys.object": "object",
    "keys.dump": "dump restore restore-asking",
    "keys.migrate": "migrate",
    "keys.sort": "sort sort_ro",
    "keys.value_structures": "rillet.shape",
    "keys.changes": "rillet.changes",
    "string.get_set": "set get setnx setex psetex getset getdel getex mget mset msetnx msetex",
    "string.ranges": "append strlen setrange getrange substr",
    "string.counters": "incr decr incrby decrby incrbyfloat",
    "string.lcs": "lcs",
    "string.conditional_delete": "digest delex delifeq",
    "string.increx": "increx",
    "bitmap.bits": "setbit getbit bitcount bitpos bitop",
    "bitmap.fields": "bitfield bitfield_ro",
    "array.elements": "arset armset arget armget ardel ardelrange arlen arcount",
    "array.ranges": "argetrange arscan arop",
    "array.search": "argrep",
    "array.ring": "arinsert arring arnext arseek arlastitems",
    "array.info": "arinfo",
    "hyperloglog.elements": "pfadd pfcount pfmerge",
    "hyperloglog.debug": "pfdebug pfselftest",
    "list.elements": "lpush rpush lpushx rpushx llen lindex lrange lpos lset linsert lrem ltrim",
    "list.pop": "lpop rpop blpop brpop lmpop blmpop",
    "list.move": "lmove rpoplpush blmove brpoplpush lmovem",
    "set.members": "sadd srem smove scard sismember smismember smembers sscan",
    "set.random_members": "spop srandmember",
    "set.operations": "sinter sinterstore sintercard sunion sunioncard sunionstore sdiff sdiffcard sdiffstore",
    "zset.members": "zadd zincrby zrem zcard zscore zmscore zrank zrevrank zscan",
    "zset.range": (
        "zrange zrevrange zrangebyscore zrevrangebyscore zrangebylex zrevrangebylex zrangestore zcount "
        "zlexcount zremrangebyrank zremrangebyscore zremrangebylex"
    ),
    "zset.operations": "zunion zinter zdiff zunionstore zinterstore zdiffstore zintercard",
    "zset.pop": "zpopmin zpopmax bzpopmin bzpopmax zmpop bzmpop",
    "zset.random_members": "zrandmember",
    "geo.members": "geoadd geopos geohash geodist",
    "geo.search": "georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore",
    "hash.fields": "hset hmset hsetnx hincrby hincrbyfloat hdel",
    "hash.read": "hget hmget hlen hstrlen hexists hkeys hvals hgetall hscan",
    "hash.random_fields": "hrandfield",
    "hash.expire": "hexpire hpexpire hexpireat hpexpireat httl hpttl hexpiretime hpexpiretime hpersist",
    "hash.get_set": "hgetex hsetex hgetdel",
    "stream.add": "xadd xtrim xsetid",
    "stream.delete": "xdel xdelex xackdel",
    "stream.range": "xlen xrange xrevrange",
    "stream.read": "xread",
    "stream.read_group": "xreadgroup",
    "stream.group": "xgroup xack",
    "stream.pending": "xpending",
    "stream.claim": "xclaim xautoclaim",
    "stream.nack": "xnack",
    "stream.info": "xinfo",
    "stream.idmp": "xcfgset xidmprecord",
    "stream.bulk_read": "rillet.xnodes rillet.xcount rillet.xrank rillet.xafter",
    "stream.seal": "rillet.seal rillet.unseal rillet.xsegments",
    "stream.memory": "rillet.xmemory",
    "stream.retention": "rillet.xretain rillet.xinfo",
    "pubsub.pubsub": "subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe publish spublish pubsub",
    "scripting.eval": "eval evalsha eval_ro evalsha_ro",
    "scripting.script": "script",
    "scripting.function": "fcall fcall_ro function",
    "acl.users": "acl",
    "acl.inspection": "acl",
    "server.info": "info",
    "server.time": "time",
    "server.lolwut": "lolwut",
    "server.persistence": "shutdown save bgsave lastsave bgrewriteaof",
    "server.slowlog": "slowlog commandlog",
    "server.latency": "latency",
    "server.hotkeys": "hotkeys",
    "server.cluster": "cluster asking readonly readwrite clusterscan trimslots",
    "server.replication": "failover replconf psync sync",
    "server.replica": "role replicaof slaveof",
    "server.config": "config",
    "server.introspection": "command",
    "server.debug": "debug",
    "server.debug_load": "debug",
    "server.wait": "wait waitaof",
    "server.memory": "memory",
    "server.modules": "module",
}
"""The modules that declare commands, and the names of these commands; some share a command and its subcommands."""

_MODULES_OF: dict[bytes, list[str]] = {}
for _module, _names in MODULES.items():
    for _name in _names.split():
        _MODULES_OF.setdefault(_name.encode(), []).append(_module)


def load(name: bytes | None = None) -> None:
    """Import the modules that declare a command, or all modules; a second call returns at once."""
    for module in MODULES if name is None else _MODULES_OF.get(name, ()):
        import_module(f"rillet.commands.{module}")
