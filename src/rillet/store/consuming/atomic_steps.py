"""The steps of groups and delayed entries that a server must execute as one: Lua scripts, and the EVALs that run them.

    add_delayed       an entry that is added to the stream later             deliver_due    the move of what is due
    hold              a retry, or a longer lease, of messages                due_retries    the retries that are due
    renew, ack, keep  if the messages still belong to the consumer           claim          except messages on hold
    bury              the same, for a message and its dead letter
    collect           hands the messages of silent consumers on, and deletes these consumers
    delete_consumer   only without messages, or after handing them on
    release           an acknowledgement in a group with an order by key

In such a group they also change the turns of the keys: rillet.store.consuming.order_steps, which has its other steps.

A transaction cannot replace them: WATCH does not notice XREADGROUP, XCLAIM and XACK, neither in Redis nor in Valkey. So
a consumer could receive a message between the check and EXEC, and XGROUP DELCONSUMER would delete it.

**Clock.** Due times are compared with TIME in the script, so the clock of a client does not matter.

**Fencing.** A message belongs to a consumer as long as the group lists it as pending for that consumer, with the same
number of deliveries. Another consumer that claims it changes both; the same consumer, after a restart, changes the
number. The number may lack one: a loop with fast handlers counts hand-outs late (rillet.store.consuming.prefetch).

Each call sends the source, which has about 500 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rillet.keyspace.helper_keys import delayed_key, order_keys, owner_key, retries_key

if TYPE_CHECKING:
    from rillet.store.message import AnyGroup, Delivered

STEP_SIZE = 100
"""The most entries or messages that one call of a script moves; the caller repeats it."""
MOST_WORDS = 7000
"""The most words of a delayed entry; Lua's `unpack` returns up to 8000."""
NOW = b"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function whole(number) return string.format('%.0f', number) end
local function is_longer(score) return score % 1 > 0 end
"""
# The part of scripts for a group with an order: consuming/order_steps.py. KEYS[3] to KEYS[5] are those of the order.
ORDER = b"""
local ordered, lanes, turns = KEYS[3], KEYS[4], KEYS[5]
local instant = time[1] * 1000000 + time[2]
local order = {}
local function place_of(lane, id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return lane .. string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #seq) .. seq
end
local function first_of(lane)
  local place = redis.call('ZRANGEBYLEX', lanes, '[' .. lane, '(' .. lane .. ':', 'LIMIT', 0, 1)[1]
  if not place then return nil end
  local ms, seq = string.sub(place, #lane + 1, #lane + 20), string.sub(place, #lane + 21)
  return string.match(ms, '^0*(%d+)$') .. '-' .. string.match(seq, '^0*(%d+)$')
end
local function end_of(turn)
  if turn == 'inf' then return '+inf' end
  if turn == 'free' then return whole(instant) end
  return whole(instant + tonumber(turn))
end
local function passed_on(lane)
  redis.call('HDEL', ordered, lane)
  if first_of(lane) then
    redis.call('ZADD', turns, whole(instant), lane)
  else
    redis.call('ZREM', turns, lane)
    if redis.call('HLEN', ordered) == 1 then redis.call('DEL', ordered) end
  end
end
local function forget(id, lane)
  redis.call('HDEL', ordered, id)
  redis.call('ZREM', lanes, place_of(lane, id))
end
function order.ended(id)
  local lane = redis.call('HGET', ordered, id)
  if lane then
    forget(id, lane)
    if redis.call('HGET', ordered, lane) == id or not first_of(lane) then passed_on(lane) end
  end
end
function order.turn(id, at)
  local lane = redis.call('HGET', ordered, id)
  if lane and redis.call('HGET', ordered, lane) == id then redis.call('ZADD', turns, at, lane) end
end
"""
NO_ORDER = b"local order, end_of\n"


def _both(source: bytes) -> tuple[bytes, bytes]:
    """Return the script for a group without an order, and for one with an order."""
    return NOW + NO_ORDER + source, NOW + ORDER + source


# KEYS: delayed. ARGV: 'at' or 'in', milliseconds, the entry, the least number. Members with the same score are in the
# order of the bytes, so a number in front keeps the order in which they were added. Rounded up: never early.
ADD_DELAYED = NOW + b"""
local due = tonumber(ARGV[2])
if ARGV[1] == 'in' then due = due + time[1] * 1000 + math.ceil(time[2] / 1000) end
due = whole(due)
local last = redis.call('ZREVRANGEBYSCORE', KEYS[1], due, due, 'LIMIT', 0, 1)[1]
local place = math.max(last and tonumber(string.sub(last, 1, 10)) + 1 or 0, tonumber(ARGV[4]))
local head = string.format('%010d', place) .. string.format('%015.0f', now)
redis.call('ZADD', KEYS[1], due, head .. ARGV[3], '+inf', '')
return due
"""
# An entry that cannot be added stays; then the error is returned.
DELIVER = b"""
local function deliver(stream, delayed, most)
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', whole(now), 'LIMIT', 0, most)
  for _, member in ipairs(due) do
    local words, at = {}, 26
    while at <= #member do
      local colon = string.find(member, ':', at, true)
      local size = tonumber(string.sub(member, at, colon - 1))
      words[#words + 1] = string.sub(member, colon + 1, colon + size)
      at = colon + size + 1
    end
    local reply = redis.pcall('XADD', stream, unpack(words))
    if type(reply) == 'table' and reply.err then return reply end
    redis.call('ZREM', delayed, member)
  end
  return #due
end
"""
# KEYS: stream, delayed. ARGV: the most entries.
_DELIVER_DUE = NOW + DELIVER + b"return deliver(KEYS[1], KEYS[2], ARGV[1])"
# KEYS: stream, retries. ARGV: group, the most messages. Returns rows of XPENDING. Longer leases that are over end here.
_DUE_RETRIES = NOW + b"""
local rows = {}
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #due, 2 do
  local row = not is_longer(due[i + 1]) and redis.call('XPENDING', KEYS[1], ARGV[1], due[i], due[i], 1)[1]
  if row then rows[#rows + 1] = row else redis.call('ZREM', KEYS[2], due[i]) end
end
return rows
"""
# KEYS: stream, retries. ARGV: group, consumer, idle milliseconds (-1: only retries that are due), deliveries or '',
# IDs. Returns entries as XCLAIM.
_CLAIM = NOW + b"""
local claimed = {}
for i = 5, #ARGV do
  local id, idle = ARGV[i], ARGV[3]
  local due = tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
  local over = due and due <= now
  local retry = over and not is_longer(due)
  if retry or idle ~= '-1' and (over or not due) then
    if due then redis.call('ZREM', KEYS[2], id) end
    local words = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], retry and 0 or idle, id}
    if ARGV[4] ~= '' then
      words[7] = 'RETRYCOUNT'
      words[8] = ARGV[4]
    end
    claimed[#claimed + 1] = redis.call(unpack(words))[1]
  end
end
return claimed
"""
# KEYS: stream, retries, then those of the order if there is one, or for a partition the key of its owner. ARGV: group,
# consumer, deliveries, turn (end_of) or the token of the partition's owner, the number of options of XCLAIM, these,
# IDs. Returns the IDs of messages that still belong to the consumer, and are not on hold.
_KEEP = _both(b"""
if not order and ARGV[4] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[4] then return {} end
local kept, words, options = {}, {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ''}, tonumber(ARGV[5])
for i = 1, options do words[6 + i] = ARGV[5 + i] end
words[7 + options] = 'JUSTID'
for i = 6 + options, #ARGV do
  local id = ARGV[i]
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])[1]
  local due = tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
  if row and row[4] == tonumber(ARGV[3]) and not (due and due > now) then
    words[6] = id
    redis.call(unpack(words))
    if order then order.turn(id, end_of(ARGV[4])) end
    kept[#kept + 1] = id
  end
end
return kept
""")
# KEYS: stream, retries, then those of the order if there is one, or for a partition the key of its owner, then for
# 'bury' the dead letters. ARGV: group, consumer, 'renew', 'ack', 'bury', 'nack', 'at', 'in' or 'longer', milliseconds
# or for 'ack' a policy and for 'nack' a mode and a count, turn (end_of) or the token of the partition's owner, then IDs
# with their deliveries; for 'bury' one, then the words of the dead letter. Returns the IDs that no longer belong to the
# consumer. The new owner of a partition leaves messages on hold to the earlier one. A dead letter that is refused is
# the reply; its message stays pending.
_LEASE = _both(b"""
local action, due = ARGV[3], tonumber(ARGV[4])
if action == 'in' or action == 'longer' then due = due + time[1] * 1000 + math.ceil(time[2] / 1000) end
local lost, owns = {}, order or ARGV[5] == '' or redis.call('GET', KEYS[3]) == ARGV[5]
for i = 6, action == 'bury' and 6 or #ARGV, 2 do
  local id, deliveries = ARGV[i], tonumber(ARGV[i + 1])
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])[1]
  local held = not owns and tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
  if not row or (row[4] ~= deliveries and row[4] ~= deliveries - 1) or not (owns or held and held > now) then
    lost[#lost + 1] = id
  elseif action == 'ack' or action == 'bury' then
    local letter = action == 'bury' and redis.pcall('XADD', KEYS[#KEYS], unpack(ARGV, 8))
    if type(letter) == 'table' and letter.err then return letter end
    if ARGV[4] == '' then
      redis.call('XACK', KEYS[1], ARGV[1], id)
    else
      redis.call('XACKDEL', KEYS[1], ARGV[1], ARGV[4], 'IDS', 1, id)
    end
    redis.call('ZREM', KEYS[2], id)
    if order then order.ended(id) end
  elseif action == 'nack' then
    local mode, count = string.match(ARGV[4], '^(%a+) ?(%d*)$')
    local words = {'XNACK', KEYS[1], ARGV[1], mode, 'IDS', 1, id}
    if count ~= '' then
      words[8] = 'RETRYCOUNT'
      words[9] = count
    end
    redis.call(unpack(words))
    if order then order.turn(id, whole(instant)) end
  else
    local score = action == 'longer' and string.format('%.1f', due + 0.5) or due and whole(due)
    if score then redis.call('ZADD', KEYS[2], score, id, '+inf', '') end
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', deliveries, 'JUSTID')
    if order then
      local turn, till = due and whole(due * 1000), end_of(ARGV[5])
      if action == 'renew' or action == 'longer' and due * 1000 < tonumber(till) then turn = till end
      order.turn(id, turn)
    end
  end
end
return lost
""")
# The acknowledgement of messages of a partition, which is most of what its consumers send: as _LEASE, and shorter.
# KEYS: stream, retries, the key of the owner. ARGV: group, consumer, token, IDs with their deliveries.
_ACK = b"""
local owns, lost = redis.call('GET', KEYS[3]) == ARGV[3], {}
for i = 4, #ARGV, 2 do
  local id, deliveries = ARGV[i], tonumber(ARGV[i + 1])
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])[1]
  local own = row and (row[4] == deliveries or row[4] == deliveries - 1)
  if own and not owns then
    local time, held = redis.call('TIME'), tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
    own = held and held > time[1] * 1000 + math.floor(time[2] / 1000)
  end
  if own then
    redis.call('XACK', KEYS[1], ARGV[1], id)
    redis.call('ZREM', KEYS[2], id)
  else
    lost[#lost + 1] = id
  end
end
return lost
"""
# One message that was neither released nor held since it was handed out, and so was handed out to nobody else while the
# token is the same. KEYS: stream, the key of the owner. ARGV: group, token, ID. Returns 0 if _ACK has to decide.
_ACK_ONE = b"""if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
return redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])"""
# The messages keep their idle time and their number of deliveries. A consumer with a message on hold keeps all.
_HAND_ON = b"""
local function hand_on(from, to, most)
  local rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', most, from)
  for _, row in ipairs(rows) do
    local due = tonumber(redis.call('ZSCORE', KEYS[2], row[1]) or nil)
    if due and due > now then return 0, false end
  end
  for _, row in ipairs(rows) do
    redis.call('XCLAIM', KEYS[1], ARGV[1], to, 0, row[1], 'IDLE', row[3], 'JUSTID')
    if order then order.turn(row[1], whole(instant)) end
  end
  return #rows, #rows < most
end
"""
# KEYS: stream, retries, those of the order. ARGV: group, idle milliseconds, receiver or '', the most messages.
# Returns whether there is more to do, and for each consumer its name, the number of messages that were handed on, and
# whether it was deleted.
_COLLECT = _both(_HAND_ON + b"""
local idle, left, heir, found = tonumber(ARGV[2]), tonumber(ARGV[4]), nil, {}
for i, flat in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local one = {}
  for j = 1, #flat, 2 do one[flat[j]] = flat[j + 1] end
  found[i] = one
  if ARGV[3] == '' and (not heir or one.idle <= heir.idle) then heir = one end
end
local to = heir and heir.name or ARGV[3]
local done, received = {}, 0
for _, one in ipairs(found) do
  if one.name ~= to and one.idle >= idle then
    if left <= 0 then return {1, unpack(done)} end
    local moved, all = 0, true
    if one.pending > 0 then moved, all = hand_on(one.name, to, left) end
    left, received = left - moved, received + moved
    if all then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], one.name) end
    if all or moved > 0 then
      for _, value in ipairs({one.name, moved, all and 1 or 0}) do done[#done + 1] = value end
    end
  end
end
if heir and heir.idle >= idle and heir.pending == 0 and received == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], to)
  for _, value in ipairs({to, 0, 1}) do done[#done + 1] = value end
end
return {left <= 0 and 1 or 0, unpack(done)}
""")
# KEYS: stream, retries, those of the order. ARGV: group, consumer, and the receiver if there is one. Returns whether it
# was deleted, and the number of its messages.
_DELETE_CONSUMER = _both(b"""
local rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
local moved = 0
while rows[1] do
  if not ARGV[3] then return {0, 0} end
  for _, row in ipairs(rows) do
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, row[1], 'IDLE', row[3], 'JUSTID')
    if order then order.turn(row[1], whole(instant)) end
  end
  moved = moved + #rows
  rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000, ARGV[2])
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return {1, moved}
""")
# KEYS: stream, retries, those of the order. ARGV: group, policy or '', IDs. Returns how many were pending.
_RELEASE = NOW + ORDER + b"""
local released = 0
for i = 3, #ARGV do
  if ARGV[2] == '' then
    released = released + redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  elseif redis.call('XACKDEL', KEYS[1], ARGV[1], ARGV[2], 'IDS', 1, ARGV[i])[1] ~= -1 then
    released = released + 1
  end
  order.ended(ARGV[i])
end
return released
"""


def evaluate(source: bytes, keys: Sequence[bytes], *args: bytes) -> list[bytes]:
    """Return the EVAL of a script."""
    return [b"EVAL", source, b"%d" % len(keys), *keys, *args]


def _keys(group: AnyGroup) -> tuple[bytes, ...]:
    return group.stream.key, retries_key(group.stream.key, group.key)


def _keys_of_part(group: AnyGroup) -> tuple[bytes, ...]:
    """Return the keys of a script for the group in a partition."""
    return (*_keys(group), owner_key(group.stream.key, group.key))


def keys_in_order(group: AnyGroup) -> tuple[bytes, ...]:
    """Return the keys of a script that changes the order of a group."""
    return (*_keys(group), *order_keys(group.stream.key, group.key))


def _perhaps_in_order(both: tuple[bytes, bytes], group: AnyGroup, in_order: bool, *args: bytes) -> list[bytes]:
    """Return the EVAL of a script, with or without the keys of the order."""
    without, within = both
    return evaluate(within, keys_in_order(group), *args) if in_order else evaluate(without, _keys(group), *args)


def add_delayed(stream: bytes, kind: bytes, ms: int, words: Sequence[bytes]) -> list[bytes]:
    """Return the command that stores an entry until it is due; its reply is that time in milliseconds since 1970.

    kind: b"at" for a time in milliseconds since 1970, b"in" for a number of milliseconds. words: XADD's, after the key.
    """
    return evaluate(ADD_DELAYED, [delayed_key(stream)], kind, b"%d" % ms, packed(words), b"0")


def packed(words: Sequence[bytes]) -> bytes:
    """Return XADD's words after the key as they are in a member of the sorted set (rillet.store.consuming.delays)."""
    return b"".join(b"%d:%b" % (len(word), word) for word in words)


def deliver_due(stream: bytes) -> list[bytes]:
    """Return the command that adds up to STEP_SIZE due entries to the stream; its reply is their number."""
    return evaluate(_DELIVER_DUE, [stream, delayed_key(stream)], b"%d" % STEP_SIZE)


def due_retries(group: AnyGroup) -> list[bytes]:
    """Return the command that lists up to STEP_SIZE messages whose retry is due, as rows of XPENDING."""
    return evaluate(_DUE_RETRIES, _keys(group), group.key, b"%d" % STEP_SIZE)


def claim(group: AnyGroup, consumer: bytes, idle_ms: int, ids: Sequence[bytes],
          deliveries: int | None = None) -> list[bytes]:  # fmt: skip
    """Return the command that claims messages as XCLAIM does, except those whose retry is not due."""
    number = b"" if deliveries is None else b"%d" % deliveries
    return evaluate(_CLAIM, _keys(group), group.key, consumer, b"%d" % idle_ms, number, *ids)


def keep(group: AnyGroup, consumer: bytes, deliveries: int, options: Sequence[bytes], ids: Sequence[bytes],
         turn: bytes | None = None) -> list[bytes]:  # fmt: skip
    """Return the command that renews those messages that still belong to a consumer, with options of XCLAIM.

    Its reply has the IDs of these messages; deliveries: their number in the group. turn: in an order by key, when the
    next turn of their keys is: b"free" now, b"inf" never, or after so many microseconds.
    """
    head = group.key, consumer, b"%d" % deliveries, turn or group.token or b"", b"%d" % len(options)
    if group.token is not None:
        return evaluate(_KEEP[0], _keys_of_part(group), *head, *options, *ids)
    return _perhaps_in_order(_KEEP, group, turn is not None, *head, *options, *ids)


def lease(group: AnyGroup, consumer: bytes, action: bytes, messages: Sequence[Delivered[Any]],
          detail: int | bytes = b"", letter: Sequence[bytes] = ()) -> list[bytes]:  # fmt: skip
    """Return the command that renews (b"renew"), acknowledges (b"ack") or holds messages of a consumer.

    A hold is a retry (b"at", b"in"), or a lease that is longer than that of the loop (b"longer"). b"bury" acknowledges
    one message and writes its dead letter, an XADD to a key in the slot of the stream.
    detail: the milliseconds of a hold, the policy with which acknowledged entries are deleted, or the mode and count
    with which messages are released (b"nack"). Either all messages have a turn, or none. The reply has the IDs of the
    messages that no longer belong to the consumer; nothing happens to these.
    """
    more = b"%d" % detail if isinstance(detail, int) else detail
    words = [word for one in messages for word in (one.raw_id, b"%d" % one.deliveries)]
    turn = messages[0].turn
    source, keys = _LEASE[turn is not None], keys_in_order(group) if turn is not None else _keys(group)
    if group.token is not None:
        keys = _keys_of_part(group)
        if action == b"ack" and not more:
            return evaluate(_ACK, keys, group.key, consumer, group.token, *words)
    end = group.token or turn or b""
    return evaluate(source, [*keys, *letter[1:2]], group.key, consumer, action, more, end, *words, *letter[2:])


def acknowledge_one(group: AnyGroup, message: bytes) -> list[bytes]:
    """Return the command that acknowledges a message of a partition; its reply is 0 if only `lease` can do that."""
    key = group.stream.key
    return evaluate(_ACK_ONE, [key, owner_key(key, group.key)], group.key, group.token or b"", message)


def release(group: AnyGroup, ids: Sequence[bytes], policy: bytes = b"") -> list[bytes]:
    """Return the command that acknowledges messages of a group with an order; its reply is how many were pending."""
    return evaluate(_RELEASE, keys_in_order(group), group.key, policy, *ids)


def collect(group: AnyGroup, idle_ms: int, to: bytes, in_order: bool = True) -> list[bytes]:
    """Return the command that collects silent consumers, and hands on up to STEP_SIZE messages; to: b"" for any.

    in_order: False for a user without permission for the keys of the order.
    """
    args = group.key, b"%d" % idle_ms, to, b"%d" % STEP_SIZE
    return _perhaps_in_order(_COLLECT, group, in_order, *args)


def delete_consumer(group: AnyGroup, consumer: bytes, to: bytes | None, in_order: bool = True) -> list[bytes]:
    """Return the command that deletes a consumer; to: the receiver of its messages, None if it must have none."""
    args = group.key, consumer, *([] if to is None else [to])
    return _perhaps_in_order(_DELETE_CONSUMER, group, in_order, *args)
