"""The arguments of every command: written by tools/argument_table.py in the notation of argument_trees.py."""

TABLE = """\
acl
acl|cat [categoryname]
  7.2 [category]
acl|deluser username...
acl|dryrun username command [arg...]
acl|genpass [bits/integer]
acl|getuser username
acl|help
acl|list
acl|load
acl|log [operation<count | RESET>]
acl|save
acl|setuser username [rule...]
acl|users
acl|whoami
append key value
arcount key
ardel key index...
ardelrange key range<start end>...
arget key index
argetrange key start end
argrep key start/string end/string predicate<exact<EXACT string> | match<MATCH string> | glob<GLOB pattern/string> |
    re<RE pattern/string>>... [options<AND | OR | LIMIT:limit | WITHVALUES | NOCASE>...]
arinfo key [FULL]
arinsert key value...
arlastitems key count [REV]
arlen key
armget key index...
armset key data<index value>...
arnext key
arop key start end operation<SUM | MIN | MAX | AND | OR | XOR | match<MATCH value> | USED>
arring key size/integer value...
arscan key start end [LIMIT:limit]
arseek key index
arset key index value...
asking
auth [username@6.0.0] password
bgrewriteaof
bgsave [SCHEDULE@3.2.2]
  valkey [operation<SCHEDULE@3.2.2 | CANCEL@8.1.0>]
bitcount key [index<start end [index_unit<BYTE | BIT>@7.0.0]>]
  7.2 key [range<start end [unit<BYTE | BIT>@7.0.0]>]
  valkey key [range<start [end-unit-block<end [unit<BYTE | BIT>@7.0.0]>]>]
bitfield key [operation<GET:encoding_offset<encoding offset> | write<[OVERFLOW:wrap_sat_fail<WRAP | SAT | FAIL>]
    write_operation<SET:encoding_offset_value<encoding offset value/integer> |
    INCRBY:encoding_offset_increment<encoding offset increment>>>>...]
  7.2 key [operation<GET:get-block<encoding offset> | write<[OVERFLOW:overflow-block<WRAP | SAT | FAIL>]
    write-operation<SET:set-block<encoding offset value/integer> | INCRBY:incrby-block<encoding offset
    increment>>>>...]
bitfield_ro key [GET:encoding_offset<encoding offset>...+]
  7.2 key [GET:get-block<encoding offset>...+]
bitop operation destkey key#1...
  7.2 operation<AND | OR | XOR | NOT | DIFF~8.2.0 | DIFF1~8.2.0 | ANDOR~8.2.0 | ONE~8.2.0> destkey key#1...
bitpos key bit/integer [index<start [end_index<end [index_unit<BYTE | BIT>@7.0.0]>]>]
  7.2 key bit/integer [range<start [end-unit-block<end [unit<BYTE | BIT>@7.0.0]>]>]
blmove source destination#1 wherefrom<LEFT | RIGHT> whereto<LEFT | RIGHT> timeout
blmpop timeout numkeys key... where<LEFT | RIGHT> [COUNT:count]
blpop key... timeout
brpop key... timeout
brpoplpush source destination#1 timeout
bzmpop timeout numkeys key... where<MIN | MAX> [COUNT:count]
bzpopmax key... timeout
bzpopmin key... timeout
client
client|caching mode<YES | NO>
client|capa
  valkey capability...
client|getname
client|getredir
client|help
client|id
client|import-source
  valkey enabled<ON | OFF>
client|info
client|kill filter<ip:port!2.8.12 | new-format<[ID:client-id@2.8.12] | [TYPE:normal_master_slave_pubsub<NORMAL |
    MASTER@3.2.0 | SLAVE | REPLICA@5.0.0 | PUBSUB>@2.8.12] | [USER:username] | [ADDR:ip:port] | [LADDR:ip:port@6.2.0]
    | [SKIPME:yes/no]>...>
  7.2 filter<old-format"ip:port"!2.8.12 | new-format<[ID:client-id@2.8.12] | [TYPE:client-type<NORMAL | MASTER@3.2.0 |
    SLAVE | REPLICA@5.0.0 | PUBSUB>@2.8.12] | [USER:username] | [ADDR:addr"ip:port"] | [LADDR:laddr"ip:port"@6.2.0] |
    [SKIPME:skipme<YES | NO>] | [MAXAGE:maxage/integer@7.4.0]>...>
  valkey filter<old-format"ip:port"!2.8.12 | new-format<[ID:client-id...@2.8.12] | [TYPE:client-type<NORMAL |
    MASTER@3.2.0 | PRIMARY@8.0.0 | SLAVE | REPLICA@5.0.0 | PUBSUB>@2.8.12] | [USER:username] | [ADDR:addr"ip:port"] |
    [LADDR:laddr"ip:port"@6.2.0] | [SKIPME:skipme<YES | NO>] | [MAXAGE:maxage/integer@8.0.0] | [NAME:name@9.0.0] |
    [IDLE:idle/integer@9.0.0] | [FLAGS:flags@9.0.0] | [LIB-NAME:lib-name@9.0.0] | [LIB-VER:lib-ver@9.0.0] |
    [DB:db/integer@9.0.0] | [CAPA:capa@9.0.0] | [IP:ip@9.0.0] | [NOT-TYPE:not-client-type<NORMAL | MASTER | PRIMARY |
    SLAVE | REPLICA | PUBSUB>@9.0.0] | [NOT-ID:not-client-id/integer...@9.0.0] | [NOT-USER:not-username@9.0.0] |
    [NOT-ADDR:not-addr"ip:port"@9.0.0] | [NOT-LADDR:not-laddr"ip:port"@9.0.0] | [NOT-NAME:not-name@9.0.0] |
    [NOT-FLAGS:not-flags@9.0.0] | [NOT-LIB-NAME:not-lib-name@9.0.0] | [NOT-LIB-VER:not-lib-ver@9.0.0] |
    [NOT-DB:not-db/integer@9.0.0] | [NOT-CAPA:not-capa@9.0.0] | [NOT-IP:not-ip@9.0.0]>...>
client|list [TYPE:normal_master_replica_pubsub<NORMAL | MASTER | REPLICA | PUBSUB>@5.0.0] [ID:id<client-id...>@6.2.0]
  7.2 [TYPE:client-type<NORMAL | MASTER | REPLICA | PUBSUB>@5.0.0] [ID:client-id...@6.2.0]
  valkey [TYPE:client-type<NORMAL | MASTER | REPLICA | PUBSUB>@5.0.0] [ID:client-id...@6.2.0] [USER:username@8.1.0]
    [ADDR:addr"ip:port"@8.1.0] [LADDR:laddr"ip:port"@8.1.0] [SKIPME:skipme<YES | NO>@8.1.0]
    [MAXAGE:maxage/integer@8.1.0] [NAME:name@9.0.0] [IDLE:idle/integer@9.0.0] [FLAGS:flags@9.0.0]
    [LIB-NAME:lib-name@9.0.0] [LIB-VER:lib-ver@9.0.0] [DB:db/integer@9.0.0] [CAPA:capa@9.0.0] [IP:ip@9.0.0]
    [NOT-TYPE:not-client-type<NORMAL | MASTER | REPLICA | PUBSUB>@9.0.0] [NOT-ID:not-client-id/integer...@9.0.0]
    [NOT-USER:not-username@9.0.0] [NOT-ADDR:not-addr"ip:port"@9.0.0] [NOT-LADDR:not-laddr"ip:port"@9.0.0]
    [NOT-NAME:not-name@9.0.0] [NOT-FLAGS:not-flags@9.0.0] [NOT-LIB-NAME:not-lib-name@9.0.0]
    [NOT-LIB-VER:not-lib-ver@9.0.0] [NOT-DB:not-db/integer@9.0.0] [NOT-CAPA:not-capa@9.0.0] [NOT-IP:not-ip@9.0.0]
client|no-evict enabled<ON | OFF>
client|no-touch enabled<ON | OFF>
client|pause timeout/integer [mode<WRITE | ALL>@6.2.0]
client|reply on_off_skip<ON | OFF | SKIP>
  7.2 action<ON | OFF | SKIP>
client|setinfo attr<LIB-NAME:libname | LIB-VER:libver>
client|setname connection-name
client|tracking status<ON | OFF> [REDIRECT:client-id] [PREFIX:prefix...+] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
client|trackinginfo
client|unblock client-id [timeout_error<TIMEOUT | ERROR>]
  7.2 client-id [unblock-type<TIMEOUT | ERROR>]
client|unpause
cluster
clusterscan
  valkey cursor/string [MATCH:match-pattern/pattern] [COUNT:count] [TYPE:type] [SLOT:slot]
cluster|addslots slot...
cluster|addslotsrange start-slot_end-slot<start-slot end-slot>...
  7.2 range<start-slot end-slot>...
cluster|bumpepoch
cluster|cancelslotmigrations
cluster|count-failure-reports node-id
cluster|countkeysinslot slot
cluster|delslots slot...
cluster|delslotsrange start-slot_end-slot<start-slot end-slot>...
  7.2 range<start-slot end-slot>...
cluster|failover [options<FORCE | TAKEOVER>]
cluster|flushslot
  valkey slot [flush-type<ASYNC | SYNC>]
cluster|flushslots
cluster|forget node-id
cluster|getkeysinslot slot count
cluster|getslotmigrations
cluster|help
cluster|info
cluster|keyslot key/string
cluster|links
cluster|meet ip port [cluster_bus_port/integer@4.0.0]
  7.2 ip port [cluster-bus-port/integer@4.0.0]
cluster|migrateslots
  valkey migration-group<slotsrange-token=SLOTSRANGE range<start-slot end-slot>... node-token=NODE node-id>...
cluster|migration subcommand<IMPORT:import<start-slot end-slot>... | CANCEL:cancel<ID:task-id | ALL> |
    STATUS:status<[ID:task-id] | [ALL]>>
cluster|myid
cluster|myshardid
cluster|nodes
cluster|replicas node-id
cluster|replicate node-id
  valkey args<node-id | no-one<NO ONE>@9.0.0>
cluster|reset [hard_soft<HARD | SOFT>]
  7.2 [reset-type<HARD | SOFT>]
cluster|saveconfig
cluster|set-config-epoch config-epoch/integer
cluster|setslot slot subcommand<IMPORTING:node-id | MIGRATING:node-id | NODE:node-id | STABLE>
  7.2 slot subcommand<IMPORTING:importing"node-id" | MIGRATING:migrating"node-id" | NODE:node"node-id" | STABLE>
  valkey slot subcommand<IMPORTING:importing"node-id" | MIGRATING:migrating"node-id" | NODE:node"node-id" | STABLE>
    [TIMEOUT:timeout/integer@8.0.0]
cluster|shards
cluster|slaves node-id
cluster|slot-stats filter<SLOTSRANGE:slotsrange<start-slot end-slot> | ORDERBY:orderby<metric [LIMIT:limit] [order<ASC
    | DESC>]>>
cluster|slots
cluster|syncslots subcommand<SYNC:sync<task-id slot-range<start-slot end-slot>...> | RDBCHANNEL:task-id | SNAPSHOT-EOF
    | STREAM-EOF | ACK:ack<state offset> | FAIL:error | CONF:conf<option... value...>>
  valkey
command
commandlog
commandlog|get
  valkey count type<SLOW | LARGE-REQUEST | LARGE-REPLY>
commandlog|help
commandlog|len
  valkey type<SLOW | LARGE-REQUEST | LARGE-REPLY>
commandlog|reset
  valkey type<SLOW | LARGE-REQUEST | LARGE-REPLY>
command|count
command|docs [command-name...]
command|getkeys
  7.2 command [arg...]
command|getkeysandflags
  7.2 command [arg...]
command|help
command|info [command-name...]
command|list [FILTERBY:filterby<MODULE:module-name | ACLCAT:category | PATTERN:pattern>]
config
config|get parameter<parameter>...
  7.2 parameter...
config|help
config|resetstat
config|rewrite
config|set parameter_value<parameter value>...
  7.2 data<parameter value>...
copy source destination#1 [DB:destination-db] [REPLACE]
dbsize
debug
decr key
decrby key decrement/integer
del key...
delex key [condition<IFEQ:ifeq-value | IFNE:ifne-value | IFDEQ:ifdeq-digest/integer | IFDNE:ifdne-digest/integer>]
  8.8 key [condition<IFEQ:ifeq-value | IFNE:ifne-value | IFDEQ:ifdeq-digest | IFDNE:ifdne-digest>]
delifeq
  valkey key value
digest key
discard
dump key
echo message
eval script numkeys [key...] [arg...]
eval_ro script numkeys [key...] [arg...]
evalsha sha1 numkeys [key...] [arg...]
evalsha_ro sha1 numkeys [key...] [arg...]
exec
exists key...
expire key seconds [condition<NX | XX | GT | LT>@7.0.0]
expireat key unix-time-seconds [condition<NX | XX | GT | LT>@7.0.0]
expiretime key
failover [TO:target<host port [FORCE]>] [ABORT] [TIMEOUT:milliseconds]
fcall function numkeys [key...] [arg...]
fcall_ro function numkeys [key...] [arg...]
flushall [async<ASYNC@4.0.0 | SYNC@6.2.0>]
  7.2 [flush-type<ASYNC@4.0.0 | SYNC@6.2.0>]
flushdb [async<ASYNC@4.0.0 | SYNC@6.2.0>]
  7.2 [flush-type<ASYNC@4.0.0 | SYNC@6.2.0>]
function
function|delete library-name
function|dump
function|flush [async<ASYNC | SYNC>]
  7.2 [flush-type<ASYNC | SYNC>]
function|help
function|kill
function|list [LIBRARYNAME:library-name-pattern] [WITHCODE]
function|load [REPLACE] function-code
function|restore serialized-value [policy<FLUSH | APPEND | REPLACE>]
function|stats
geoadd key [condition<NX | XX>@6.2.0] [change=CH@6.2.0] longitude_latitude_member<longitude latitude member>...
  7.2 key [condition<NX | XX>@6.2.0] [change=CH@6.2.0] data<longitude latitude member>...
geodist key member1 member2 [unit<M | KM | FT | MI>]
geohash key member...
  7.2 key [member...]
geopos key member...
  7.2 key [member...]
georadius key longitude latitude radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count<COUNT:count
    [ANY@6.2.0]>] [order<ASC | DESC>] [STORE:key#1] [STOREDIST:key#2]
  7.2 key longitude latitude radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block<COUNT:count
    [ANY@6.2.0]>] [order<ASC | DESC>] [store<STORE:storekey/key#1"key" | STOREDIST:storedistkey/key#2"key">]
georadius_ro key longitude latitude radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count<COUNT:count
    [ANY@6.2.0]>] [order<ASC | DESC>]
  7.2 key longitude latitude radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block<COUNT:count
    [ANY@6.2.0]>] [order<ASC | DESC>]
georadiusbymember key member radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count<COUNT:count
    [ANY]>] [order<ASC | DESC>] [STORE:key#1] [STOREDIST:key#2]
  7.2 key member radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block<COUNT:count [ANY]>]
    [order<ASC | DESC>] [store<STORE:storekey/key#1"key" | STOREDIST:storedistkey/key#2"key">]
georadiusbymember_ro key member radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count<COUNT:count
    [ANY]>] [order<ASC | DESC>]
  7.2 key member radius unit<M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [count-block<COUNT:count [ANY]>]
    [order<ASC | DESC>]
geosearch key from<FROMMEMBER:member | FROMLONLAT:longitude_latitude<longitude latitude>> by<circle<BYRADIUS:radius
    unit<M | KM | FT | MI>> | box<BYBOX:width height unit<M | KM | FT | MI>>> [order<ASC | DESC>] [count<COUNT:count
    [ANY]>] [WITHCOORD] [WITHDIST] [WITHHASH]
  7.2 key from<FROMMEMBER:member | FROMLONLAT:fromlonlat<longitude latitude>> by<circle<BYRADIUS:radius unit<M | KM |
    FT | MI>> | box<BYBOX:width height unit<M | KM | FT | MI>>> [order<ASC | DESC>] [count-block<COUNT:count [ANY]>]
    [WITHCOORD] [WITHDIST] [WITHHASH]
  valkey key [from<FROMMEMBER:member | FROMLONLAT:fromlonlat<longitude latitude>>] by<circle<BYRADIUS:radius unit<M |
    KM | FT | MI>> | box<BYBOX:width height unit<M | KM | FT | MI>> | polygon<BYPOLYGON:num-vertices/integer
    vertices<longitude latitude>...>@9.0.0> [order<ASC | DESC>] [count-block<COUNT:count [ANY]>] [WITHCOORD]
    [WITHDIST] [WITHHASH]
geosearchstore destination source#1 from<FROMMEMBER:member | FROMLONLAT:longitude_latitude<longitude latitude>>
    by<circle<BYRADIUS:radius unit<M | KM | FT | MI>> | box<BYBOX:width height unit<M | KM | FT | MI>>> [order<ASC |
    DESC>] [count<COUNT:count [ANY]>] [STOREDIST]
  7.2 destination source#1 from<FROMMEMBER:member | FROMLONLAT:fromlonlat<longitude latitude>>
    by<circle<BYRADIUS:radius unit<M | KM | FT | MI>> | box<BYBOX:width height unit<M | KM | FT | MI>>> [order<ASC |
    DESC>] [count-block<COUNT:count [ANY]>] [STOREDIST]
  valkey destination source#1 [from<FROMMEMBER:member | FROMLONLAT:fromlonlat<longitude latitude>>]
    by<circle<BYRADIUS:radius unit<M | KM | FT | MI>> | box<BYBOX:width height unit<M | KM | FT | MI>> |
    polygon<BYPOLYGON:num-vertices/integer vertices<longitude latitude>...>@9.0.0> [order<ASC | DESC>]
    [count-block<COUNT:count [ANY]>] [STOREDIST]
get key
getbit key offset
getdel key
getex key [expiration<EX:seconds | PX:milliseconds | EXAT:unix-time-seconds | PXAT:unix-time-milliseconds | PERSIST>]
getrange key start end
getset key value
hdel key field...
hello [arguments<protover/integer [AUTH:username_password<username password>] [SETNAME:clientname]>]
  7.2 [arguments<protover/integer [AUTH:auth<username password>] [SETNAME:clientname]>]
hexists key field
hexpire key seconds [condition<NX | XX | GT | LT>] FIELDS:fields<numfields field...>
hexpireat key unix-time-seconds [condition<NX | XX | GT | LT>] FIELDS:fields<numfields field...>
  valkey key unix-time-seconds/integer [condition<NX | XX | GT | LT>@9.0.0] FIELDS:fields<numfields#0 field...>
hexpiretime key FIELDS:fields<numfields field...>
  valkey key FIELDS:fields<numfields#0 field...>
hget key field
hgetall key
hgetdel key FIELDS:fields<numfields field...>
  valkey key FIELDS:fields<numfields#0 field...>
hgetex key [expiration<EX:seconds | PX:milliseconds | EXAT:unix-time-seconds | PXAT:unix-time-milliseconds | PERSIST>]
    FIELDS:fields<numfields field...>
  valkey key [expiration<EX:seconds | PX:milliseconds | EXAT:unix-time-seconds | PXAT:unix-time-milliseconds |
    PERSIST>] FIELDS:fields<numfields#0 field...>
hincrby key field increment
hincrbyfloat key field increment/double
hkeys key
hlen key
hmget key field...
hmset key field_value<field value>...
  7.2 key data<field value>...
hotkeys
hotkeys|get
hotkeys|help
hotkeys|reset
hotkeys|start METRICS:metrics<count [CPU] [NET]> [COUNT:k/integer] [DURATION:seconds] [SAMPLE:ratio/integer]
    [SLOTS:slots<count slot...>]
hotkeys|stop
hpersist key FIELDS:fields<numfields field...>
  valkey key FIELDS:fields<numfields#0 field...>
hpexpire key milliseconds [condition<NX | XX | GT | LT>] FIELDS:fields<numfields field...>
  valkey key milliseconds [condition<NX | XX | GT | LT>@9.0.0] FIELDS:fields<numfields#0 field...>
hpexpireat key unix-time-milliseconds [condition<NX | XX | GT | LT>] FIELDS:fields<numfields field...>
  valkey key unix-time-milliseconds/integer [condition<NX | XX | GT | LT>@9.0.0] FIELDS:fields<numfields#0 field...>
hpexpiretime key FIELDS:fields<numfields field...>
  valkey key FIELDS:fields<numfields#0 field...>
hpttl key FIELDS:fields<numfields field...>
  valkey key FIELDS:fields<numfields#0 field...>
hrandfield key [options<count [WITHVALUES]>]
hscan key cursor [MATCH:pattern] [COUNT:count] [NOVALUES~7.4.0]
  valkey key cursor [MATCH:pattern] [COUNT:count] [NOVALUES~7.4.0]
hset key field_value<field value>...
  7.2 key data<field value>...
hsetex key [condition<FNX | FXX>] [expiration<EX:seconds | PX:milliseconds | EXAT:unix-time-seconds |
    PXAT:unix-time-milliseconds | KEEPTTL>] FIELDS:fields<numfields data<field value>...>
  valkey key [key-condition<NX | XX>] [fields-condition<FNX | FXX>] [expiration<EX:seconds | PX:milliseconds |
    EXAT:unix-time-seconds | PXAT:unix-time-milliseconds | KEEPTTL>] FIELDS:fields<numfields#0 data<field value>...>
hsetnx key field value
hstrlen key field
httl key FIELDS:fields<numfields field...>
  valkey key FIELDS:fields<numfields#0 field...>
hvals key
incr key
incrby key increment
incrbyfloat key increment/double
increx key [increment<BYFLOAT:float/double | BYINT:integer/integer>] [SATURATE] [LBOUND:lowerbound]
    [UBOUND:upperbound] [expiration<EX:seconds | PX:milliseconds | EXAT:unix-time-seconds |
    PXAT:unix-time-milliseconds | PERSIST>] [ENX]
info [section...]
keys pattern
lastsave
latency
latency|doctor
latency|graph event
latency|help
latency|histogram [command...]
latency|history event
latency|latest
latency|reset [event...]
lcs key1/key key2/key [LEN] [IDX] [MINMATCHLEN:len/integer] [WITHMATCHLEN]
  7.2 key1/key key2/key [LEN] [IDX] [MINMATCHLEN:min-match-len/integer] [WITHMATCHLEN]
lindex key index
linsert key where<BEFORE | AFTER> pivot element
llen key
lmove source destination#1 wherefrom<LEFT | RIGHT> whereto<LEFT | RIGHT>
lmpop numkeys key... where<LEFT | RIGHT> [COUNT:count]
lolwut [VERSION:version/integer]
lpop key [count@6.2.0]
lpos key element [RANK:rank/integer] [COUNT:num-matches/integer] [MAXLEN:len/integer]
lpush key element...
lpushx key element...
lrange key start stop
lrem key count element
lset key index element
ltrim key start stop
memory
memory|doctor
memory|help
memory|malloc-stats
memory|purge
memory|stats
memory|usage key [SAMPLES:count]
mget key...
migrate host port key_or_empty_string<key | empty_string=''> destination-db timeout/integer [COPY@3.0.0]
    [REPLACE@3.0.0] [authentication<[AUTH:password@4.0.7] | [AUTH2:username_password<username password>@6.0.0]>]
    [KEYS:key#1...@3.0.6]
  7.2 host port key-selector<key | empty-string=''> destination-db timeout/integer [COPY@3.0.0] [REPLACE@3.0.0]
    [authentication<AUTH:auth"password"@4.0.7 | AUTH2:auth2<username password>@6.0.0>] [KEYS:keys/key#1"key"...@3.0.6]
module
module|help
module|list
module|load path [arg...]
module|loadex path [CONFIG:configs<name value>...+] [ARGS:args<arg>...]
  7.2 path [CONFIG:configs<name value>...+] [ARGS:args...]
module|unload name
monitor
move key db/integer
mset key_value<key value>...
  7.2 data<key value>...
msetex numkeys data<key value>... [condition<NX | XX>] [expiration<EX:seconds | PX:milliseconds |
    EXAT:unix-time-seconds | PXAT:unix-time-milliseconds | KEEPTTL>]
msetnx key_value<key value>...
  7.2 data<key value>...
multi
object
object|encoding key
object|freq key
object|help
object|idletime key
object|refcount key
persist key
pexpire key milliseconds [condition<NX | XX | GT | LT>@7.0.0]
pexpireat key unix-time-milliseconds [condition<NX | XX | GT | LT>@7.0.0]
pexpiretime key
pfadd key [element...]
pfcount key...
pfdebug subcommand key
pfmerge destkey sourcekey/key#1...
  7.2 destkey [sourcekey/key#1...]
pfselftest
ping [message]
psetex key milliseconds value
psubscribe pattern<pattern>...
  7.2 pattern...
psync replicationid offset
pttl key
publish channel message
pubsub
pubsub|channels [pattern]
pubsub|help
pubsub|numpat
pubsub|numsub [channel...]
pubsub|shardchannels [pattern]
pubsub|shardnumsub [shardchannel...]
punsubscribe [pattern...]
quit
randomkey
readonly
readwrite
rename key newkey#1
renamenx key newkey#1
replconf
replicaof args<host-port<host port> | no-one<NO ONE>>
reset
restore key ttl serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME:seconds@5.0.0] [FREQ:frequency@5.0.0]
restore-asking key ttl serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME:seconds@5.0.0] [FREQ:frequency@5.0.0]
role
rpop key [count@6.2.0]
rpoplpush source destination#1
rpush key element...
rpushx key element...
sadd key member...
save
scan cursor [MATCH:pattern] [COUNT:count] [TYPE:type@6.0.0]
scard key
script
script|debug mode<YES | SYNC | NO>
  valkey mode<YES | SYNC | NO> [engine@9.1.0]
script|exists sha1...
script|flush [async<ASYNC | SYNC>@6.2.0]
  7.2 [flush-type<ASYNC | SYNC>@6.2.0]
script|help
script|kill
script|load script
script|show
  valkey sha1
sdiff key...
sdiffcard numkeys key... [LIMIT:limit]
sdiffstore destination key#1...
select index
set key value [condition<NX | XX | IFEQ:ifeq-value@8.4.0 | IFNE:ifne-value@8.4.0 | IFDEQ:ifdeq-digest/integer@8.4.0 |
    IFDNE:ifdne-digest/integer@8.4.0>@2.6.12] [GET@6.2.0] [expiration<EX:seconds@2.6.12 | PX:milliseconds@2.6.12 |
    EXAT:unix-time-seconds@6.2.0 | PXAT:unix-time-milliseconds@6.2.0 | KEEPTTL@6.0.0>]
  8.8 key value [condition<NX | XX | IFEQ:ifeq-value@8.4.0 | IFNE:ifne-value@8.4.0 | IFDEQ:ifdeq-digest@8.4.0 |
    IFDNE:ifdne-digest@8.4.0>@2.6.12] [GET@6.2.0] [expiration<EX:seconds@2.6.12 | PX:milliseconds@2.6.12 |
    EXAT:unix-time-seconds@6.2.0 | PXAT:unix-time-milliseconds@6.2.0 | KEEPTTL@6.0.0>]
  valkey key value [condition<NX@2.6.12 | XX@2.6.12 | IFEQ:comparison-value@8.1.0>] [GET@6.2.0]
    [expiration<EX:seconds@2.6.12 | PX:milliseconds@2.6.12 | EXAT:unix-time-seconds@6.2.0 |
    PXAT:unix-time-milliseconds@6.2.0 | KEEPTTL@6.0.0>]
setbit key offset value/integer
setex key seconds value
setnx key value
setrange key offset value
shutdown [nosave_save<NOSAVE | SAVE>] [NOW@7.0.0] [FORCE@7.0.0] [ABORT@7.0.0]
  7.2 [save-selector<NOSAVE | SAVE>] [NOW@7.0.0] [FORCE@7.0.0] [ABORT@7.0.0]
  valkey [abort-selector<save-selector-block<[save-selector<NOSAVE | SAVE>] [NOW@7.0.0] [FORCE@7.0.0] [SAFE@9.0.0]
    [FAILOVER@9.0.0]> | ABORT@7.0.0>]
sinter key...
sintercard numkeys key... [LIMIT:limit]
sinterstore destination key#1...
sismember key member
slaveof args<host-port<host port> | no-one<NO ONE>>
slowlog
slowlog|get [count]
slowlog|help
slowlog|len
slowlog|reset
smembers key
smismember key member...
smove source destination#1 member
sort key [BY:pattern#1] [LIMIT:offset_count<offset count>] [GET:pattern#1...+] [order<ASC | DESC>] [sorting=ALPHA]
    [STORE:destination#2]
  7.2 key [BY:by-pattern/pattern#1"pattern"] [LIMIT:limit<offset count>] [GET:get-pattern/pattern#1"pattern"...+]
    [order<ASC | DESC>] [sorting=ALPHA] [STORE:destination#2]
sort_ro key [BY:pattern#1] [LIMIT:offset_count<offset count>] [GET:pattern#1...+] [order<ASC | DESC>] [sorting=ALPHA]
  7.2 key [BY:by-pattern/pattern#1"pattern"] [LIMIT:limit<offset count>] [GET:get-pattern/pattern#1"pattern"...+]
    [order<ASC | DESC>] [sorting=ALPHA]
spop key [count@3.2.0]
spublish shardchannel message
srandmember key [count@2.6.0]
srem key member...
sscan key cursor [MATCH:pattern] [COUNT:count]
ssubscribe shardchannel...
strlen key
subscribe channel...
substr key start end
sunion key...
sunioncard numkeys key... [APPROX] [LIMIT:limit]
sunionstore destination key#1...
sunsubscribe [shardchannel...]
swapdb index1/integer index2/integer
sync
time
touch key...
trimslots RANGES:ranges<numranges/integer slots<startslot/integer endslot/integer>...>
ttl key
type key
unlink key...
unsubscribe [channel...]
unwatch
wait numreplicas timeout/integer
waitaof numlocal/integer numreplicas timeout/integer
watch key...
xack key group id...
xackdel key group [condition<KEEPREF | DELREF | ACKED>] IDS:ids<numids/integer id...>
xadd key [NOMKSTREAM@6.2.0] [trim<strategy<MAXLEN | MINID@6.2.0> [operator<equal='=' | approximately='~'>] threshold
    [LIMIT:count@6.2.0]>] id_or_auto<auto_id='*' | id> field_value<field value>...
  7.2 key [NOMKSTREAM@6.2.0] [condition<KEEPREF | DELREF | ACKED>~8.2.0]
    [idmp<idmpauto-with-pid<idmpauto-token=IDMPAUTO pid> | idmp-with-pid-iid<idmp-token=IDMP pid iid>>~8.6.0]
    [trim<strategy<MAXLEN | MINID@6.2.0> [operator<equal='=' | approximately='~'>] threshold [LIMIT:count@6.2.0]>]
    id-selector<auto-id='*' | id> data<field value>...
  8.8 key [NOMKSTREAM@6.2.0] [condition<KEEPREF | DELREF | ACKED>~8.2.0] [idmp<IDMPAUTO:pid | IDMP:idmp<pid
    iid>>@8.6.0] [trim<strategy<MAXLEN | MINID@6.2.0> [operator<equal='=' | approximately='~'>] threshold
    [LIMIT:count@6.2.0]>] id-selector<auto-id='*' | id> data<field value>...
xautoclaim key group consumer min-idle-time start/string [COUNT:count] [JUSTID]
xcfgset key [idmp-duration-block<idmp-duration-token=IDMP-DURATION duration/integer>]
    [idmp-maxsize-block<idmp-maxsize-token=IDMP-MAXSIZE maxsize/integer>]
  8.8 key [IDMP-DURATION:idmp-duration/integer] [IDMP-MAXSIZE:idmp-maxsize/integer]
xclaim key group consumer min-idle-time id... [IDLE:ms/integer] [TIME:unix-time-milliseconds] [RETRYCOUNT:count]
    [FORCE] [JUSTID] [LASTID:id]
  7.2 key group consumer min-idle-time id... [IDLE:ms/integer] [TIME:unix-time-milliseconds] [RETRYCOUNT:count]
    [FORCE] [JUSTID] [LASTID:lastid]
xdel key id...
xdelex key [condition<KEEPREF | DELREF | ACKED>] IDS:ids<numids/integer id...>
xgroup
xgroup|create key groupname id<id | new_id='$'> [MKSTREAM] [ENTRIESREAD:entries_read/integer]
  7.2 key group id-selector<id | new-id='$'> [MKSTREAM] [ENTRIESREAD:entries-read/integer]
  7.4 key group id-selector<id | new-id='$'> [MKSTREAM] [ENTRIESREAD:entriesread/integer"entries-read"]
  valkey key group id-selector<id | new-id='$'> [MKSTREAM] [ENTRIESREAD:entriesread/integer"entries-read"]
xgroup|createconsumer key groupname consumername
  7.2 key group consumer
xgroup|delconsumer key groupname consumername
  7.2 key group consumer
xgroup|destroy key groupname
  7.2 key group
xgroup|help
xgroup|setid key groupname id<id | new_id='$'> [ENTRIESREAD:entries_read/integer]
  7.2 key group id-selector<id | new-id='$'> [ENTRIESREAD:entriesread/integer"entries-read"]
xidmprecord key pid iid stream-id
xinfo
xinfo|consumers key groupname
  7.2 key group
xinfo|groups key
xinfo|help
xinfo|stream key [FULL:full<[COUNT:count]>]
  7.2 key [full-block<FULL [COUNT:count]>]
xlen key
xnack key group mode<SILENT | FAIL | FATAL> IDS:ids<numids/integer id...> [RETRYCOUNT:count] [FORCE]
xpending key group [filters<[IDLE:min-idle-time/integer@6.2.0] start/string end/string count [consumer]>]
xrange key start/string end/string [COUNT:count]
xread [COUNT:count] [MAXCOUNT:maxcount/integer@8.10.0] [MAXSIZE:maxsize/integer@8.10.0] [BLOCK:milliseconds]
    STREAMS:streams<key... id...>
xreadgroup GROUP:group_consumer<group consumer> [COUNT:count] [BLOCK:milliseconds] [NOACK] STREAMS:streams<key...
    id...>
  7.2 GROUP:group-block<group consumer> [COUNT:count] [MAXCOUNT:maxcount/integer@8.10.0]
    [MAXSIZE:maxsize/integer@8.10.0] [BLOCK:milliseconds] [CLAIM:min-idle-time/integer~8.4.0] [NOACK]
    STREAMS:streams<key... id...>
xrevrange key end/string start/string [COUNT:count]
xsetid key last-id [ENTRIESADDED:entries_added/integer@7.0.0] [MAXDELETEDID:max_deleted_entry_id@7.0.0]
  7.2 key last-id [ENTRIESADDED:entries-added/integer@7.0.0] [MAXDELETEDID:max-deleted-id@7.0.0]
xtrim key trim<strategy<MAXLEN | MINID@6.2.0> [operator<equal='=' | approximately='~'>] threshold [LIMIT:count@6.2.0]
    [condition<KEEPREF | DELREF | ACKED>~8.2.0]>
zadd key [condition<NX | XX>@3.0.2] [comparison<GT | LT>@6.2.0] [change=CH@3.0.2] [increment=INCR@3.0.2]
    score_member<score/double member>...
  7.2 key [condition<NX | XX>@3.0.2] [comparison<GT | LT>@6.2.0] [change=CH@3.0.2] [increment=INCR@3.0.2]
    data<score/double member>...
zcard key
zcount key min/double max/double
zdiff numkeys key... [WITHSCORES]
zdiffstore destination numkeys key#1...
zincrby key increment member
zinter numkeys key... [WEIGHTS:weight...] [AGGREGATE:aggregate<SUM | MIN | MAX | COUNT@8.8.0>] [WITHSCORES]
zintercard numkeys key... [LIMIT:limit]
zinterstore destination numkeys key#1... [WEIGHTS:weight...] [AGGREGATE:aggregate<SUM | MIN | MAX | COUNT@8.8.0>]
zlexcount key min max
zmpop numkeys key... where<MIN | MAX> [COUNT:count]
zmscore key member...
zpopmax key [count]
zpopmin key [count]
zrandmember key [options<count [WITHSCORES]>]
zrange key start/string stop/string [sortby<BYSCORE | BYLEX>@6.2.0] [REV@6.2.0] [LIMIT:offset_count<offset
    count>@6.2.0] [WITHSCORES]
  7.2 key start/string stop/string [sortby<BYSCORE | BYLEX>@6.2.0] [REV@6.2.0] [LIMIT:limit<offset count>@6.2.0]
    [WITHSCORES]
zrangebylex key min max [LIMIT:offset_count<offset count>]
  7.2 key min max [LIMIT:limit<offset count>]
zrangebyscore key min/double max/double [WITHSCORES@2.0.0] [LIMIT:offset_count<offset count>]
  7.2 key min/double max/double [WITHSCORES@2.0.0] [LIMIT:limit<offset count>]
zrangestore dst/key src/key#1 min max [sortby<BYSCORE | BYLEX>] [REV] [LIMIT:offset_count<offset count>]
  7.2 dst/key src/key#1 min max [sortby<BYSCORE | BYLEX>] [REV] [LIMIT:limit<offset count>]
zrank key member
  7.2 key member [WITHSCORE]
zrem key member...
zremrangebylex key min max
zremrangebyrank key start stop
zremrangebyscore key min/double max/double
zrevrange key start stop [WITHSCORES]
zrevrangebylex key max min [LIMIT:offset_count<offset count>]
  7.2 key max min [LIMIT:limit<offset count>]
zrevrangebyscore key max/double min/double [WITHSCORES] [LIMIT:offset_count<offset count>]
  7.2 key max/double min/double [WITHSCORES] [LIMIT:limit<offset count>]
zrevrank key member
  7.2 key member [WITHSCORE]
zscan key cursor [MATCH:pattern] [COUNT:count]
  valkey key cursor [MATCH:pattern] [COUNT:count] [NOSCORES]
zscore key member
zunion numkeys key... [WEIGHTS:weight...] [AGGREGATE:aggregate<SUM | MIN | MAX | COUNT@8.8.0>] [WITHSCORES]
zunionstore destination numkeys key#1... [WEIGHTS:weight...] [AGGREGATE:aggregate<SUM | MIN | MAX | COUNT@8.8.0>]
"""
