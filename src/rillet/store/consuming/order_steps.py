"""The order by key: what a group stores about it, and the part of the Lua scripts that changes it.

    worker.messages(order_by="customer")

Messages with the same value of the field are a lane. Only the first pending message of a lane may be handed out. While
it is in a handler, the lane's turn lies in the future; a consumer takes a message of a lane whose turn has come.

    XADD ... customer ada        lane "3:ada": the length of the value, a colon, the value
    XADD ... customer bob        lane "3:bob"
    XADD ...                     lane "?1700000000000-0;": an entry without the field is alone in its lane

    rillet:ordered:{TAG}STREAM:GROUP     a hash: "" -> the field; ID -> lane; lane -> the ID that was handed out last
    rillet:lanes:{TAG}STREAM:GROUP       a sorted set of lane + ID, the numbers of the ID with 20 digits each: the bytes
                                         of the members order the messages of a lane, so its first one is O(log n)
    rillet:turns:{TAG}STREAM:GROUP       a sorted set: lane -> the time from which its first message may be taken, in
                                         microseconds since 1970: now, the end of a lease, or the time of a retry

**Invariants.** A message is in the first two keys from the moment when a consumer with order_by reads it until it is
acknowledged. A lane with messages has a turn, and no other lane has. Without messages none of the keys exists.

**Steps.** Each is one script (here and in consuming/atomic_steps.py), so no consumer sees a lane between two states.

    take       reads new messages into their lanes; hands out the first message of lanes whose turn has come, and sets
               their turns to the end of the lease
    ack        removes the message from its lane; the turn is now if another message waits, else the lane ends
    renew      the turn is the new end of the lease: a heartbeat, or a message that was read ahead
    retry      the turn is the time of the retry; the message stays the first one of its lane
    free       a message was given back, or its consumer was deleted or started again: the turn is now

**The lease** is the `claim_idle` of the loop that received the message, by the clock of the store. When it is over, any
consumer takes the message, and after it the others of the lane, in order. Without claim_idle it has no end: the lane
waits for its consumer, which starts with its own lanes, or until the consumer is collected or deleted. A handler that
outlives its lease no longer owns its message, so `ack`, `extend` and `retry` raise LeaseLost (fencing: atomic_steps).

**Messages that others know of.** The pending list of the group decides what is pending. A message that was acknowledged
by plain XACK, or went with its consumer, is found missing when the lane is looked at: its turn comes, or a loop has
nothing else to do. A message that is pending and in no lane was read without order_by; `take` finds more pending
messages than places in lanes, and adopts them in the order of their IDs, before it reads new ones. The leases of live
handlers are kept. So a group can change to order_by with messages pending, and a stream can be renamed.
A loop without order_by, or by another field, would break the order: it raises ValueError while lanes exist.

Rejected: an owner for each key, to whom others hand entries. The owner had to be found dead, and a slow handler of one
key would hold all its keys; with turns, a key moves at each message, to whoever is free. Rejected: a list or a sorted
set for each key: their names would be unknown before the script reads the entries, and a cluster, an ACL and Redis's
rules for scripts need the names before. Rejected: the number of a partition instead of the key: one failed message
would hold back other keys.

**Cost.** A take is O(log n) for each message it reads, hands out or adopts, and O(consumers of the group). A message
that waits for its lane takes about 300 bytes. Consumers read on past messages that must wait, to find free lanes.

A step reads at most READS messages, so it takes a few milliseconds; the caller repeats it. `held` lists the keys for
`Group.ordered_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rillet.store.consuming.atomic_steps import NOW, ORDER, STEP_SIZE, evaluate, keys_in_order
from rillet.store.consuming.filter_steps import LAST, WHERE

if TYPE_CHECKING:
    from rillet.store.message import AnyGroup

READS = 200
"""The most messages that one call of `take` reads, adopts or removes."""
# KEYS: stream, retries, those of the order. ARGV: group, consumer, field, the most messages, how many of them are
# handed out next, the lease (end_of), max_deliveries or '', where an adoption continues or '-', conditions. Returns
# {whether there is more to do, where an adoption continues, the group's last delivered ID if nothing was taken,
# microseconds until the next turn or -1, whether messages wait behind others, and for each message {ID, fields,
# deliveries that are counted, 1 if it had max_deliveries before}}; or {-1, the field of the present order}.
_TAKE = NOW + ORDER + WHERE + LAST + b"""
local group, consumer, by = ARGV[1], ARGV[2], redis.call('HGET', ordered, '')
if by and by ~= ARGV[3] then return {-1, by} end
local most, next_ones, till = tonumber(ARGV[4]), tonumber(ARGV[5]), end_of(ARGV[6])
local limit, where = ARGV[7] ~= '' and tonumber(ARGV[7]), conditions(9)
local taken, left, more, from = {}, READS, 0, '-'

local function row_of(id) return redis.call('XPENDING', KEYS[1], group, id, id, 1)[1] end
local function enter(id, flat)
  local value = value_of(flat, ARGV[3])
  local lane = value and #value .. ':' .. value or '?' .. id .. ';'
  redis.call('HSET', ordered, '', ARGV[3], id, lane)
  redis.call('ZADD', lanes, 0, place_of(lane, id))
  return lane
end
local function hold(lane, id, score)
  redis.call('HSET', ordered, lane, id)
  redis.call('ZADD', turns, score, lane)
end
local function skip(id)
  redis.call('XACK', KEYS[1], group, id)
  order.ended(id)
end
local function take_first(lane)
  while left > 0 do
    left = left - 1
    local id = first_of(lane)
    if not id then return passed_on(lane) end
    local row, due = row_of(id), tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
    if not row then
      forget(id, lane)
    elseif due and due > now then
      return hold(lane, id, whole(due * 1000))
    else
      local count, spent = row[4], limit and row[4] >= limit
      if not spent and #taken < next_ones then count = count + 1 end
      local entry = redis.call('XCLAIM', KEYS[1], group, consumer, 0, id, 'RETRYCOUNT', count)[1]
      if due then redis.call('ZREM', KEYS[2], id) end
      if entry and matches(entry[2], where) then
        hold(lane, id, till)
        taken[#taken + 1] = {id, entry[2], count, spent and 1 or 0}
        return
      end
      redis.call('XACK', KEYS[1], group, id)  -- its entry was deleted, or is not wanted
      forget(id, lane)
    end
  end
end
local function uncounted(id) redis.call('XCLAIM', KEYS[1], group, consumer, 0, id, 'RETRYCOUNT', 0, 'JUSTID') end
local function is_held(lane, id)
  local score = redis.call('ZSCORE', turns, lane)
  if not score or score ~= 'inf' and tonumber(score) <= instant then return false end
  local held = redis.call('HGET', ordered, lane)
  return held and held ~= id and row_of(held) and true
end

local known = redis.call('ZCARD', lanes)
if redis.call('XPENDING', KEYS[1], group)[1] > known then
  local rows = redis.call('XPENDING', KEYS[1], group, ARGV[8], '+', STEP)
  for _, row in ipairs(rows) do
    local id = row[1]
    if redis.call('HEXISTS', ordered, id) == 0 then
      local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
      if not entry or not matches(entry[2], where) then
        redis.call('XACK', KEYS[1], group, id)
      else
        local lane = enter(id, entry[2])
        if not redis.call('ZSCORE', turns, lane) then
          local leased = ARGV[6] == 'inf' or row[3] * 1000 < tonumber(ARGV[6])
          if row[2] == consumer or row[3] < 0 or not leased then
            redis.call('ZADD', turns, whole(instant), lane)
          else
            hold(lane, id, ARGV[6] == 'inf' and '+inf' or whole(instant + ARGV[6] - row[3] * 1000))
          end
        end
      end
    end
  end
  if #rows == STEP then more, from = 1, '(' .. rows[STEP][1] end
end

local ready = redis.call('ZRANGEBYSCORE', turns, '-inf', whole(instant), 'LIMIT', 0, most)
for _, lane in ipairs(ready) do take_first(lane) end
if left <= 0 or #ready == most and #taken < most then more = 1 end

while more == 0 and #taken < most do
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most - #taken, 'STREAMS', KEYS[1], '>')
  if not reply then break end
  for _, row in ipairs(reply[1][2]) do
    local id, flat = row[1], row[2]
    left = left - 1
    if not matches(flat, where) then
      skip(id)
    else
      local lane = enter(id, flat)
      if is_held(lane, id) then
        uncounted(id)
      elseif first_of(lane) == id then
        if #taken >= next_ones then uncounted(id) end
        hold(lane, id, till)
        taken[#taken + 1] = {id, flat, #taken < next_ones and 1 or 0, 0}
      else
        uncounted(id)
        redis.call('ZADD', turns, whole(instant), lane)  -- what is before it is gone
        more = 1
      end
    end
  end
  if left <= 0 then more = 1 end
end

local last, wait, behind = '', -1, 0
if #taken == 0 and more == 0 then
  last = last_delivered(group)
  local following = redis.call('ZRANGEBYSCORE', turns, '(' .. whole(instant), '(inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if following then wait = following - instant end
  behind = redis.call('ZCARD', lanes) - redis.call('ZCARD', turns)
end
return {more, from, last, wait, behind, taken}
"""
_TAKE = _TAKE.replace(b"READS", b"%d" % READS).replace(b"STEP", b"%d" % STEP_SIZE)
# KEYS: stream, retries, those of the order. ARGV: group, consumer, 1 if it starts again, the place of the first turn,
# the most turns. Returns the place of the next one, or -1, and how many keys were freed.
_FREE = NOW + ORDER + b"""
local kept, found = 0, redis.call('ZRANGEBYSCORE', turns, '(' .. whole(instant), '+inf', 'LIMIT', ARGV[4], ARGV[5])
for _, lane in ipairs(found) do
  local id = redis.call('HGET', ordered, lane)
  local row = id and redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not row or row[3] < 0 or (ARGV[3] == '1' and row[2] == ARGV[2]) then
    redis.call('ZADD', turns, 0, lane)
  else
    kept = kept + 1
  end
end
return {#found == tonumber(ARGV[5]) and ARGV[4] + kept or -1, #found - kept}
"""
# KEYS: stream, retries, those of the order. ARGV: group, the most keys. Returns the field and, for each key, the lane,
# the time of its turn, its first message, the consumer of this or '', its deliveries, and the number of its messages.
_HELD = NOW + ORDER + b"""
local found = {}
local pairs_of = redis.call('ZREVRANGE', turns, 0, ARGV[2] - 1, 'WITHSCORES')
for i = 1, #pairs_of, 2 do
  local lane, id = pairs_of[i], first_of(pairs_of[i])
  local row = id and redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if row then
    local taken = pairs_of[i + 1] == 'inf' or tonumber(pairs_of[i + 1]) > instant
    found[#found + 1] = {lane, pairs_of[i + 1], id, taken and row[2] or '', row[4],
                         redis.call('ZLEXCOUNT', lanes, '[' .. lane, '(' .. lane .. ':')}
  end
end
return {redis.call('HGET', ordered, ''), found}
"""


def take(group: AnyGroup, consumer: bytes, field: bytes, most: int, next_ones: int, turn: bytes, limit: int | None,
         start: bytes, where: Sequence[bytes]) -> list[bytes]:  # fmt: skip
    """Return the command that takes up to `most` messages, each of another key, for a consumer; see _TAKE.

    turn: the lease in microseconds, or b"inf". start: b"-", or where the last call says that the adoption continues.
    """
    args = field, b"%d" % most, b"%d" % next_ones, turn, b"" if limit is None else b"%d" % limit, start, *where
    return evaluate(_TAKE, keys_in_order(group), group.key, consumer, *args)


def free(group: AnyGroup, consumer: bytes, restarted: bool, place: int) -> list[bytes]:
    """Return the command that frees keys whose message is gone; `restarted`: also those of this consumer.

    It examines STEP_SIZE keys from `place` on; its reply is the next place, or -1, and how many keys were freed.
    """
    return evaluate(_FREE, keys_in_order(group), group.key, consumer, b"%d" % restarted, b"%d" % place,
                    b"%d" % STEP_SIZE)  # fmt: skip


def held(group: AnyGroup, count: int) -> list[bytes]:
    """Return the command that lists up to `count` keys with messages; see _HELD."""
    return evaluate(_HELD, keys_in_order(group), group.key, b"%d" % count)
