"""The methods of redis-py's clients that a Store does not have, and what a Store has in their place.

`store.get("k")` is an AttributeError that names `store.string(...)` and `store.redis()`. The names are in this table,
so that redis-py need not be installed.
"""

from __future__ import annotations

_OF_TYPES = {
    "string('name'), or counter('name') for a number": """
        append decr decrby delex digest get getdel getex getrange getset incr incrby incrbyfloat increx lcs mget mset
        msetex msetnx psetex setex setnx setrange strlen substr""",
    "bitmap('name')": "bitcount bitfield bitfield_ro bitop bitpos getbit setbit",
    "hash('name')": """
        hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex hincrby hincrbyfloat hkeys hlen hmget
        hmset hpersist hpexpire hpexpireat hpexpiretime hpttl hrandfield hscan hscan_iter hset hsetex hsetnx hstrlen
        httl hvals""",
    "list('name')": """
        blmove blmovem blmpop blpop brpop brpoplpush lindex linsert llen lmove lmovem lmpop lpop lpos lpush lpushx
        lrange lrem lset ltrim rpop rpoplpush rpush rpushx sort sort_ro""",
    "set('name')": """
        sadd scard sdiff sdiffcard sdiffstore sinter sintercard sinterstore sismember smembers smismember smove spop
        srandmember srem sscan sscan_iter sunion sunioncard sunionstore""",
    "zset('name')": """
        bzmpop bzpopmax bzpopmin zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount
        zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem
        zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan
        zscan_iter zscore zunion zunionstore""",
    "stream('name')": "xadd xcfgset xdel xdelex xinfo_stream xlen xrange xread xrevrange xtrim",
    "stream('name').group('group')": """
        xack xackdel xautoclaim xclaim xgroup_create xgroup_createconsumer xgroup_delconsumer xgroup_destroy
        xgroup_setid xinfo_consumers xinfo_groups xnack xpending xpending_range xreadgroup""",
    "geo('name')": "geoadd geodist geohash geopos georadius georadiusbymember geosearch geosearchstore",
    "hyperloglog('name')": "pfadd pfcount pfmerge",
    "array('name')": """
        arcount ardel ardelrange arget argetrange argrep arinfo arinsert arlastitems arlen armget armset arnext arop
        arring arscan arseek arset""",
    "keys()": "scan scan_iter",
    "expire(), expire_at(), ttl()": "expireat expiretime pexpire pexpireat pexpiretime pttl",
    "rename(..., replace=False)": "renamenx",
    "delete()": "unlink",
    "subscribe()": "monitor pubsub",
    "publish(..., shard=True)": "spublish",
    "transaction()": "multi pipeline unwatch watch",
    "script()": "eval eval_ro evalsha evalsha_ro register_script script_exists script_flush script_kill script_load",
    "load_functions() and function()": "fcall fcall_ro function_load",
    "execute(...)": """
        acl_cat acl_deluser acl_dryrun acl_genpass acl_getuser acl_list acl_load acl_log acl_log_reset acl_save
        acl_setuser acl_users acl_whoami auth bgrewriteaof bgsave client_getname client_id client_info client_kill
        client_list client_setname command command_count command_docs command_info command_list config_get
        config_resetstat config_rewrite config_set dbsize debug_object dump echo execute_command flushall flushdb
        function_delete function_dump function_flush function_kill function_list function_restore function_stats
        lastsave latency_doctor latency_histogram latency_history latency_latest latency_reset lock lolwut
        memory_doctor memory_purge memory_stats memory_usage migrate module_list move object ping pubsub_channels
        pubsub_numpat pubsub_numsub pubsub_shardchannels pubsub_shardnumsub randomkey replicaof restore role
        slowlog_get slowlog_len slowlog_reset swapdb time touch wait waitaof""",
}
_HINTS = {name: hint for hint, names in _OF_TYPES.items() for name in names.split()}


def missing_method(store: object, name: str) -> AttributeError:
    """Return the error for an attribute that a store does not have."""
    kind = type(store).__name__
    text = f"{kind!r} object has no attribute {name!r}"
    if name in _HINTS:
        client = "redis_async()" if kind.startswith("Async") else "redis()"
        text += f": it is a method of redis-py's clients. Use store.{_HINTS[name]}, or store.{client}.{name}(...)"
    return AttributeError(text, name=name)


def not_a_value(store: object, name: object) -> TypeError:
    """Return the error for store.set("k", "v"), which redis-py's clients have for strings."""
    client = "redis_async()" if type(store).__name__.startswith("Async") else "redis()"
    return TypeError("store.set(name) is the set of that name, and takes a codec only: to set a string, use "
                     f"store.string({name!r:.100}).set_value(...), or store.{client}.set(...) of redis-py")  # fmt: skip
