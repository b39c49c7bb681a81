"""The steps of partitioned streams that a server must execute as one: Lua scripts, and the EVALs that run them.

    in the slot of the description      begin, commit, drop     a change of the number of partitions
                                        join                    registers a group
                                        balance, renew, leave   the consumers of a group and their partitions
                                        advance                 a group begins to read the next epoch
                                        begin_reset, end_reset  a group goes to another position
    in the slot of a partition          create, ensure_group    its key and its groups
                                        reset                   the position of a group
                                        read, resume            messages for the consumer that owns the partition
                                        add_later, move         delayed entries

**The record** of a group is a hash, `rillet:consumers:{TAG}NAME:GROUP`:

    epoch, partitions, start   the epoch that the group reads, its number of partitions, and where the group began
    token                      the last token
    member:w1                  END INSTANCE: when its lease ends, in ms since 1970, and the loop that holds it
    owner:3                    TOKEN RELEASES w1: partition 3 belongs to w1; RELEASES: 1 if w1 has one too many
    done:3                     the group has handled everything in partition 3 of this epoch
    reset                      TOKEN POSITION: a `reset_to` that has begun

**Fair share.** With N partitions and M consumers, N modulo M consumers own ceil(N / M) of them, the others
floor(N / M). A consumer that owns more gives the highest ones back, one that owns fewer takes free ones. No other
partition moves.

**Fencing.** Each partition that gets an owner gets a new token, higher than all earlier ones. The first `read` or
`resume` of the owner writes its token beside the partition. From then on these scripts refuse a lower one. They also
make the messages that an earlier owner left the new owner's, so that its acknowledgement raises LeaseLost.

**A reset** has three steps, which any consumer continues; meanwhile `balance` gives nobody a partition. It begins with
a new token, `reset` writes this beside each partition and sets the position of the group, and it ends with the group in
the oldest epoch, without owners. So no owner from before reads at the new position, and none after it is set back.

**Delayed entries** are beside their partition, as for any stream, and each read of its owner first adds what is due. A
sealed partition refuses them. Those of an epoch that has ended move to the next one, one partition at a time: `move`
adds some to the new place, then they are removed from the old one. The new place remembers how far each old partition
was moved (the due time and the entry), so a move that is repeated, or that was paused meanwhile, adds nothing twice.
That needs an old place to which nothing is added: its own epoch has ended, and every entry of the epoch before has
moved, because a group goes on only when it has seen that nothing waits. The numbers of an epoch's entries begin with
its own number, so the entries that were added earlier come first among those with the same due time.

**Clock.** Leases end by TIME in the script, so the clock of a client does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rillet.keyspace.helper_keys import consumers_key, delayed_key, moved_key, owner_key, partitions_key, retries_key
from rillet.store.consuming.atomic_steps import ADD_DELAYED, DELIVER, NOW, STEP_SIZE, evaluate, packed
from rillet.store.consuming.filter_steps import READ, WHERE
from rillet.store.partitions.layout import HASH, SEALED

NUMBERS = 10**7
"""The numbers of an epoch for entries with the same due time (ADD_DELAYED)."""
# KEYS: description. ARGV: by, hash, the number of partitions, the epoch that ends (0: there is none yet). Returns the
# description. A change that is under way stays.
_BEGIN = b"""
if ARGV[4] == '0' and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'by', ARGV[1], 'hash', ARGV[2], 'epoch', 0)
end
if redis.call('HGET', KEYS[1], 'epoch') == ARGV[4] then redis.call('HSETNX', KEYS[1], 'next', ARGV[3]) end
return redis.call('HGETALL', KEYS[1])
"""
# KEYS: description. ARGV: the epoch that ends, the number of partitions of the next one. Returns the description.
_COMMIT = b"""
if redis.call('HGET', KEYS[1], 'epoch') == ARGV[1] and redis.call('HGET', KEYS[1], 'next') == ARGV[2] then
  local epoch = tonumber(ARGV[1]) + 1
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'partitions:' .. epoch, ARGV[2])
  redis.call('HDEL', KEYS[1], 'next')
end
return redis.call('HGETALL', KEYS[1])
"""
# KEYS: description. ARGV: an epoch. Forgets an epoch that has ended, and that every group has handled, if there is one.
_DROP = b"""
local flat, groups = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #flat, 2 do
  local group = string.sub(flat[i], 1, 6) == 'group:'
  if group then groups = groups + 1 end
  if (group or flat[i] == 'epoch') and tonumber(flat[i + 1]) <= tonumber(ARGV[1]) then return 0 end
end
if groups == 0 then return 0 end
local partitions = redis.call('HGET', KEYS[1], 'partitions:' .. ARGV[1])
if not partitions then return 0 end
redis.call('HSET', KEYS[1], 'deleted:' .. ARGV[1], partitions)
return redis.call('HDEL', KEYS[1], 'partitions:' .. ARGV[1])
"""
# The oldest epoch of a description, and its number of partitions.
OLDEST = b"""
local function oldest()
  local first, partitions
  local flat = redis.call('HGETALL', KEYS[1])
  for i = 1, #flat, 2 do
    local epoch = tonumber(string.match(flat[i], '^partitions:(%d+)$'))
    if epoch and (not first or epoch < first) then first, partitions = epoch, flat[i + 1] end
  end
  return first, partitions
end
"""
# KEYS: description, record. ARGV: group, start. Registers a group whose groups in the partitions exist. It begins with
# the oldest epoch.
_JOIN = OLDEST + b"""
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local first, partitions = oldest()
redis.call('HSET', KEYS[2], 'epoch', first, 'partitions', partitions, 'start', ARGV[2], 'token', 0)
redis.call('HSET', KEYS[1], 'group:' .. ARGV[1], first)
return 1
"""
# KEYS: description, record. ARGV: group, the epoch that the group has handled. Returns whether the group advanced.
_ADVANCE = b"""
local flat = redis.call('HGETALL', KEYS[2])
local found, done, stale = {}, 0, {}
for i = 1, #flat, 2 do
  found[flat[i]] = flat[i + 1]
  local kind = string.match(flat[i], '^(%a+):')
  if kind == 'done' then done = done + 1 end
  if kind == 'done' or kind == 'owner' then stale[#stale + 1] = flat[i] end
end
local after = tonumber(ARGV[2]) + 1
local partitions = redis.call('HGET', KEYS[1], 'partitions:' .. after)
if found.epoch ~= ARGV[2] or done < tonumber(found.partitions) or not partitions then return 0 end
for _, name in ipairs(stale) do redis.call('HDEL', KEYS[2], name) end
redis.call('HSET', KEYS[2], 'epoch', after, 'partitions', partitions)
redis.call('HSET', KEYS[1], 'group:' .. ARGV[1], after)
return 1
"""
# KEYS: record. ARGV: position. Returns the token of the reset, 0 for an unknown group.
_BEGIN_RESET = b"""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local token = redis.call('HINCRBY', KEYS[1], 'token', 1)
redis.call('HSET', KEYS[1], 'reset', token .. ' ' .. ARGV[1])
return token
"""
# KEYS: partition, owner. ARGV: group, position, token. Returns whether the partition exists. A later reset, and one
# that has ended, stay.
_RESET = b"""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local owner = redis.call('GET', KEYS[2])
if owner and tonumber(owner) > tonumber(ARGV[3]) then return 1 end
redis.call('SET', KEYS[2], ARGV[3])
local reply = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2])
if type(reply) == 'table' and reply.err then redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[2]) end
return 1
"""
# KEYS: description, record. ARGV: group, token, where the group begins in later epochs. Returns whether it ended now.
_END_RESET = OLDEST + b"""
local reset = redis.call('HGET', KEYS[2], 'reset')
if not reset or string.match(reset, '^%d+') ~= ARGV[2] then return 0 end
local flat = redis.call('HGETALL', KEYS[2])
for i = 1, #flat, 2 do
  local kind = string.match(flat[i], '^(%a+):')
  if kind == 'done' or kind == 'owner' then redis.call('HDEL', KEYS[2], flat[i]) end
end
redis.call('HDEL', KEYS[2], 'reset')
local first, partitions = oldest()
redis.call('HSET', KEYS[2], 'epoch', first, 'partitions', partitions, 'start', ARGV[3])
redis.call('HSET', KEYS[1], 'group:' .. ARGV[1], first)
return 1
"""
# KEYS: description, record. ARGV: consumer, instance, milliseconds of its lease, 1 if it joins, the epoch of its
# partitions, then a 'release' or 'done', a partition and its token, as often as needed. Returns false for an unknown
# group, -1 for a consumer whose name another loop has taken, -2 during a reset, else the epoch of the group, its number
# of partitions, the epoch that receives entries, the number of consumers, the milliseconds until the next lease of
# another one ends or -1, how many partitions are done, whether this one waits for partitions of others, and its
# partitions: number, token, and 1 if it has to give it back.
_BALANCE = NOW + b"""
local flat = redis.call('HGETALL', KEYS[2])
local members, owners, done, record = {}, {}, {}, {}
for i = 1, #flat, 2 do
  local kind, name = string.match(flat[i], '^(%a+):(.*)$')
  if kind == 'member' then
    local ends, instance = string.match(flat[i + 1], '^(%d+) (.*)$')
    members[name] = {ends = tonumber(ends), instance = instance}
  elseif kind == 'owner' then
    local token, releases, consumer = string.match(flat[i + 1], '^(%d+) (%d) (.*)$')
    owners[tonumber(name)] = {token = tonumber(token), releases = releases == '1', name = consumer}
  elseif kind == 'done' then
    done[tonumber(name)] = true
  else
    record[flat[i]] = flat[i + 1]
  end
end
if not record.epoch then return false end
if record.reset then return {-2} end
local n, token, me = tonumber(record.partitions), tonumber(record.token), ARGV[1]
local function save(p)
  local owner = owners[p]
  redis.call('HSET', KEYS[2], 'owner:' .. p, owner.token .. ' ' .. (owner.releases and 1 or 0) .. ' ' .. owner.name)
end
local function next_token()
  token = token + 1
  redis.call('HSET', KEYS[2], 'token', token)
  return token
end
local mine = members[me]
if mine and mine.instance ~= ARGV[2] then
  if ARGV[4] ~= '1' then return {-1} end
  for p = 0, n - 1 do
    if owners[p] and owners[p].name == me then
      owners[p].token = next_token()
      save(p)
    end
  end
end
members[me] = {ends = now + tonumber(ARGV[3]), instance = ARGV[2]}
redis.call('HSET', KEYS[2], 'member:' .. me, string.format('%.0f ', members[me].ends) .. ARGV[2])
local count, wake = 0, -1
for name, member in pairs(members) do
  if member.ends <= now and name ~= me then
    redis.call('HDEL', KEYS[2], 'member:' .. name)
    members[name] = nil
  else
    count = count + 1
    if name ~= me and (wake < 0 or member.ends - now < wake) then wake = member.ends - now end
  end
end
if ARGV[5] == record.epoch then
  for i = 6, #ARGV, 3 do
    local p = tonumber(ARGV[i + 1])
    if owners[p] and owners[p].name == me and owners[p].token == tonumber(ARGV[i + 2]) then
      redis.call('HDEL', KEYS[2], 'owner:' .. p)
      owners[p] = nil
      if ARGV[i] == 'done' then
        redis.call('HSET', KEYS[2], 'done:' .. p, 1)
        done[p] = true
      end
    end
  end
end
local held, finished = {}, 0
for p = 0, n - 1 do
  if done[p] then finished = finished + 1 end
  local owner = owners[p]
  if owner and not members[owner.name] then
    redis.call('HDEL', KEYS[2], 'owner:' .. p)
    owners[p] = nil
  elseif owner and not owner.releases then
    held[owner.name] = (held[owner.name] or 0) + 1
  end
end
local floor, big = math.floor(n / count), 0
for name, number in pairs(held) do
  if name ~= me and number > floor then big = big + 1 end
end
local share, has = floor + (big < n - floor * count and 1 or 0), held[me] or 0
for p = n - 1, 0, -1 do
  local owner = owners[p]
  if has > share and owner and owner.name == me and not owner.releases then
    owner.releases, has = true, has - 1
    save(p)
  end
end
local others = false
for p = 0, n - 1 do
  local owner = owners[p]
  if has < share and not done[p] and (not owner or owner.name == me and owner.releases) then
    owners[p] = {token = owner and owner.token or next_token(), releases = false, name = me}
    has = has + 1
    save(p)
  elseif owner and owner.name ~= me then
    others = true
  end
end
local short = others and has < share
local current = tonumber(redis.call('HGET', KEYS[1], 'epoch') or record.epoch)
local reply = {tonumber(record.epoch), n, current, count, wake, finished, short and 1 or 0}
for p = 0, n - 1 do
  local owner = owners[p]
  if owner and owner.name == me then
    reply[#reply + 1] = p
    reply[#reply + 1] = owner.token
    reply[#reply + 1] = owner.releases and 1 or 0
  end
end
return reply
"""
# KEYS: record. ARGV: consumer, instance, milliseconds. Returns whether the consumer is still a member.
_RENEW = NOW + b"""
local member = redis.call('HGET', KEYS[1], 'member:' .. ARGV[1])
if not member or string.match(member, '^%d+ (.*)$') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'member:' .. ARGV[1], string.format('%.0f ', now + tonumber(ARGV[3])) .. ARGV[2])
return 1
"""
# KEYS: record. ARGV: consumer, instance. The consumer leaves, and its partitions are free at once.
_LEAVE = b"""
local member = redis.call('HGET', KEYS[1], 'member:' .. ARGV[1])
if not member or string.match(member, '^%d+ (.*)$') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'member:' .. ARGV[1])
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do
  if string.sub(flat[i], 1, 6) == 'owner:' and string.match(flat[i + 1], '^%d+ %d (.*)$') == ARGV[1] then
    redis.call('HDEL', KEYS[1], flat[i])
  end
end
return 1
"""
# KEYS: partition. Creates an empty stream.
_CREATE = b"""
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], 'rillet', '0', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', KEYS[1], 'rillet')
end
return 1
"""
_SEAL = b"if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('XSETID', KEYS[1], ARGV[1]) end return 1"
# KEYS: partition. ARGV: group, start. Returns whether the partition exists.
_ENSURE_GROUP = b"""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local reply = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2])
if type(reply) == 'table' and reply.err and not string.find(reply.err, 'BUSYGROUP', 1, true) then return reply end
return 1
"""
_OWNED = b"""
local owner = redis.call('GET', KEYS[2])
if owner ~= ARGV[3] then
  if owner and tonumber(owner) > tonumber(ARGV[3]) then return {0} end
  redis.call('SET', KEYS[2], ARGV[3])
end
"""
# KEYS: partition, owner, delayed. ARGV: group, consumer, token, the most messages, how many of them count as delivered,
# whether messages that do not match are left, conditions. Returns 0 if the consumer does not own the partition, else 1,
# the messages, and whether to read again at once; and if not the last ID of the stream, how many messages are pending,
# and the milliseconds until a delayed entry is due, -1 if none waits, and -2 if delays are not in use.
# What does not match is acknowledged, or left without a delivery.
_READ = NOW + _OWNED + WHERE + DELIVER + b"""
local refused = deliver(KEYS[1], KEYS[3], STEP)
if type(refused) == 'table' and not string.find(refused.err, 'exhausted the last possible ID', 1, true) then
  return refused
end
local found, most, left, where = {}, tonumber(ARGV[4]), SIZE, conditions(7)
while #found < most and left > 0 do
  local count = math.min(most - #found, left)
  local rows = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', KEYS[1], '>')
  if not rows or not rows[1] or #rows[1][2] == 0 then break end
  if #ARGV == 6 then
    found = rows[1][2]
    if #found == count then left = 0 end
    break
  end
  for _, row in ipairs(rows[1][2]) do
    left = left - 1
    if matches(row[2], where) then
      found[#found + 1] = row
    elseif ARGV[6] == '1' then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'RETRYCOUNT', 0, 'JUSTID')
    else
      redis.call('XACK', KEYS[1], ARGV[1], row[1])
    end
  end
end
local ahead = {}
for i = tonumber(ARGV[5]) + 1, #found do ahead[#ahead + 1] = found[i][1] end
if #ahead > 0 then
  for _, word in ipairs({'RETRYCOUNT', 0, 'JUSTID'}) do ahead[#ahead + 1] = word end
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(ahead))
end
if #found == most or left <= 0 then return {1, found, 1} end
local info, last, wait = redis.call('XINFO', 'STREAM', KEYS[1]), '0-0', -2
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
local due = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
if due then wait = due == 'inf' and -1 or math.max(0, math.ceil(due - now)) end
return {1, found, 0, last, redis.call('XPENDING', KEYS[1], ARGV[1])[1], wait}
"""
_READ = _READ.replace(b"STEP", b"%d" % STEP_SIZE).replace(b"SIZE", b"%d" % READ)
# KEYS: partition, owner, retries. ARGV: group, consumer, token, the ID from which to look, the most messages, the
# deliveries after which a message has failed or -1, whether messages that do not match are left, and conditions. Claims
# pending messages, the lowest ID first, up to one that is on hold. Returns 0 if the consumer does not own the
# partition, else 1, the milliseconds for which the next one is on hold or -1, the last ID that was looked at or '', and
# rows: message, deliveries, and 1 if it has failed. All other messages that an earlier owner left become the
# consumer's, too.
_RESUME = NOW + _OWNED + WHERE + b"""
local leaves, where = ARGV[7] == '1', conditions(8)
local function is_left(id)
  if not leaves then return false end
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  return entry and not matches(entry[2], where)
end
local rows = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[4], '+', 1000)
local size, most, wait, last, found, blocked = tonumber(ARGV[5]), tonumber(ARGV[6]), -1, '', {}, false
for i, row in ipairs(rows) do
  local due = tonumber(redis.call('ZSCORE', KEYS[3], row[1]) or nil)
  local held = due and due > now
  if #found < size and not blocked then
    if is_left(row[1]) then
      if row[2] ~= ARGV[2] then
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'IDLE', row[3], 'JUSTID')
      end
      last = row[1]
    elseif held then
      wait, blocked = due - now, true
    else
      if due then redis.call('ZREM', KEYS[3], row[1]) end
      local failed = most >= 0 and row[4] >= most
      local count = failed and row[4] or row[4] + 1
      local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'RETRYCOUNT', count)[1]
      if entry and matches(entry[2], where) then
        found[#found + 1] = {entry, count, failed and 1 or 0}
      else
        redis.call('XACK', KEYS[1], ARGV[1], row[1])
      end
      last = row[1]
    end
  elseif not held and row[2] ~= ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'IDLE', row[3], 'JUSTID')
  end
end
return {1, math.ceil(wait), last, found}
"""
# KEYS: delayed, partition. ARGV: those of ADD_DELAYED, the last ID of a sealed key. Returns false if the partition
# accepts no entry.
_ADD_LATER = b"""
if redis.call('EXISTS', KEYS[2]) == 0 then return false end
local info = redis.call('XINFO', 'STREAM', KEYS[2])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' and info[i + 1] == ARGV[5] then return false end
end
""" + ADD_DELAYED
# KEYS: partition of the next epoch, its delayed entries, how far they were moved. ARGV: the partition whose entries
# move, then due times and members, in their order. Returns whether the partition exists. Lua's comparison of strings
# depends on the locale of the server.
_MOVE = b"""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local function is_after(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a > b end
  end
  return #one > #other
end
local due, last = string.match(redis.call('HGET', KEYS[3], ARGV[1]) or '-1 ', '^(-?%d+) (.*)$')
for i = 2, #ARGV, 2 do
  local later = tonumber(ARGV[i]) - tonumber(due)
  if later > 0 or later == 0 and is_after(ARGV[i + 1], last) then
    due, last = ARGV[i], ARGV[i + 1]
    redis.call('ZADD', KEYS[2], due, last, '+inf', '')
  end
end
redis.call('HSET', KEYS[3], ARGV[1], due .. ' ' .. last)
return 1
"""


# -- in the slot of the description ------------------------------------------------------------------------


def begin(name: bytes, by: bytes, partitions: int, ends: int) -> list[bytes]:
    """Return the command that begins a change of the number of partitions; its reply is the description (HGETALL)."""
    return evaluate(_BEGIN, [partitions_key(name)], by, HASH, b"%d" % partitions, b"%d" % ends)


def commit(name: bytes, ends: int, partitions: int) -> list[bytes]:
    """Return the command that makes the next epoch the one that receives entries; its reply is the description."""
    return evaluate(_COMMIT, [partitions_key(name)], b"%d" % ends, b"%d" % partitions)


def drop(name: bytes, epoch: int) -> list[bytes]:
    """Return the command that forgets an epoch; its reply is 0 if a group still reads it, or entries go there."""
    return evaluate(_DROP, [partitions_key(name)], b"%d" % epoch)


def join(name: bytes, group: bytes, start: bytes) -> list[bytes]:
    """Return the command that registers a group; its reply is 0 if it was registered."""
    return evaluate(_JOIN, [partitions_key(name), consumers_key(name, group)], group, start)


def advance(name: bytes, group: bytes, epoch: int) -> list[bytes]:
    """Return the command after which a group reads the epoch after this one; its reply is 0 if it cannot yet."""
    return evaluate(_ADVANCE, [partitions_key(name), consumers_key(name, group)], group, b"%d" % epoch)


def balance(name: bytes, group: bytes, consumer: bytes, instance: bytes, lease_ms: int, joins: bool, epoch: int,
            actions: Iterable[tuple[bytes, int, int]]) -> list[bytes]:  # fmt: skip
    """Return the command that renews a consumer and balances the partitions; see the script for its reply.

    actions: b"release" or b"done", a partition of the epoch, and its token.
    """
    words = [word for action, partition, token in actions for word in (action, b"%d" % partition, b"%d" % token)]
    return evaluate(_BALANCE, [partitions_key(name), consumers_key(name, group)], consumer, instance, b"%d" % lease_ms,
                 b"1" if joins else b"0", b"%d" % epoch, *words)  # fmt: skip


def renew(name: bytes, group: bytes, consumer: bytes, instance: bytes, lease_ms: int) -> list[bytes]:
    """Return the command that renews the lease of a consumer; its reply is 0 if it has none."""
    return evaluate(_RENEW, [consumers_key(name, group)], consumer, instance, b"%d" % lease_ms)


def leave(name: bytes, group: bytes, consumer: bytes, instance: bytes) -> list[bytes]:
    """Return the command that gives all partitions of a consumer back."""
    return evaluate(_LEAVE, [consumers_key(name, group)], consumer, instance)


# -- in the slot of a partition ------------------------------------------------------------------------------


def create(key: bytes) -> list[bytes]:
    """Return the command that creates the key of a partition."""
    return evaluate(_CREATE, [key])


def seal(key: bytes) -> list[bytes]:
    """Return the command after which a partition accepts no entry; nothing happens to a key that was deleted."""
    return evaluate(_SEAL, [key], SEALED)


def ensure_group(key: bytes, group: bytes, start: bytes) -> list[bytes]:
    """Return the command that creates a group in a partition unless it exists; its reply is 0 without the partition."""
    return evaluate(_ENSURE_GROUP, [key], group, start)


def begin_reset(name: bytes, group: bytes, position: bytes) -> list[bytes]:
    """Return the command that begins a reset; its reply is its token, or 0 without such a group."""
    return evaluate(_BEGIN_RESET, [consumers_key(name, group)], position)


def end_reset(name: bytes, group: bytes, token: int, start: bytes) -> list[bytes]:
    """Return the command that ends a reset whose partitions are done; its reply is 0 if it has ended before."""
    return evaluate(_END_RESET, [partitions_key(name), consumers_key(name, group)], group, b"%d" % token, start)


def reset(key: bytes, group: bytes, position: bytes, token: int) -> list[bytes]:
    """Return the command that sets the position of a group in a partition; its reply is 0 without the partition."""
    return evaluate(_RESET, [key, owner_key(key, group)], group, position, b"%d" % token)


def read(key: bytes, group: bytes, consumer: bytes, token: int, count: int, delivered: int, leaves: bool = False,
         where: Sequence[bytes] = ()) -> list[bytes]:  # fmt: skip
    """Return the command that reads new messages of a partition; see the script for its reply.

    delivered: how many of them count as delivered; the others are read ahead.
    """
    keys = [key, owner_key(key, group), delayed_key(key)]
    words = group, consumer, b"%d" % token, b"%d" % count, b"%d" % delivered, b"1" if leaves else b"0"
    return evaluate(_READ, keys, *words, *where)


def resume(key: bytes, group: bytes, consumer: bytes, token: int, start: bytes, count: int,
           most: int | None, leaves: bool = False, where: Sequence[bytes] = ()) -> list[bytes]:  # fmt: skip
    """Return the command that claims pending messages of a partition; see the script for its reply."""
    keys = [key, owner_key(key, group), retries_key(key, group)]
    limit = b"%d" % (-1 if most is None else most)
    words = group, consumer, b"%d" % token, start, b"%d" % count, limit, b"1" if leaves else b"0"
    return evaluate(_RESUME, keys, *words, *where)


def add_later(key: bytes, epoch: int, kind: bytes, ms: int, words: Sequence[bytes]) -> list[bytes]:
    """Return the command that stores an entry until it is due; see atomic_steps.add_delayed. None if it is sealed."""
    least = b"%d" % (epoch * NUMBERS % 10**10)
    return evaluate(_ADD_LATER, [delayed_key(key), key], kind, b"%d" % ms, packed(words), least, SEALED)


def move(source: bytes, target: bytes, members: Iterable[tuple[bytes, float]]) -> list[bytes]:
    """Return the command that adds delayed entries of a sealed partition to one of the next epoch; 0 without that."""
    words = [word for member, due in members for word in (b"%d" % due, member)]
    return evaluate(_MOVE, [target, delayed_key(target), moved_key(target)], source, *words)
