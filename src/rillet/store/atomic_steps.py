"""The steps of groups and delayed entries that a server must execute as one: Lua scripts, and the EVALs that run them.

    add_delayed       an entry that is added to the stream later             deliver_due    the move of what is due
    hold              a retry, or a longer lease, of messages                due_retries    the retries that are due
    renew, ack, keep  if the messages still belong to the consumer           claim          except messages on hold
    collect           hands the messages of silent consumers on, and deletes these consumers
    delete_consumer   only without messages, or after handing them on

A transaction cannot replace them: WATCH does not notice XREADGROUP, XCLAIM and XACK, neither in Redis nor in Valkey. So
a consumer could receive a message between the check and EXEC, and XGROUP DELCONSUMER would delete it.

**Clock.** Due times are compared with TIME in the script, so the clock of a client does not matter.

**Fencing.** A message belongs to a consumer as long as the group lists it as pending for that consumer, with the same
number of deliveries. Another consumer that claims it changes both; the same consumer, after a restart, changes the
number. The number may lack one: a loop with fast handlers counts hand-outs late (rillet.store.prefetch).

Each call sends the source, which has about 500 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rillet.keyspace.helper_keys import delayed_key, retries_key

if TYPE_CHECKING:
    from rillet.store.prefetch import GroupLike

STEP_SIZE = 100
"""The most entries or messages that one call of a script moves; the caller repeats it."""
MOST_WORDS = 7000
"""The most words of a delayed entry; Lua's `unpack` returns up to 8000."""
_NOW = b"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function whole(number) return string.format('%.0f', number) end
"""
# KEYS: delayed. ARGV: 'at' or 'in', milliseconds, the entry. Members with the same score are in the order of the bytes,
# so a number in front keeps the order in which they were added. Rounded up: an entry is never early.
_ADD_DELAYED = _NOW + b"""
local due = tonumber(ARGV[2])
if ARGV[1] == 'in' then due = due + time[1] * 1000 + math.ceil(time[2] / 1000) end
due = whole(due)
local last = redis.call('ZREVRANGEBYSCORE', KEYS[1], due, due, 'LIMIT', 0, 1)[1]
local place = last and tonumber(string.sub(last, 1, 10)) + 1 or 0
local head = string.format('%010d', place) .. string.format('%015.0f', now)
redis.call('ZADD', KEYS[1], due, head .. ARGV[3], '+inf', '')
return due
"""
# KEYS: stream, delayed. ARGV: the most entries. An entry that cannot be added stays.
_DELIVER_DUE = _NOW + b"""
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', whole(now), 'LIMIT', 0, ARGV[1])
for _, member in ipairs(due) do
  local words, at = {}, 26
  while at <= #member do
    local colon = string.find(member, ':', at, true)
    local size = tonumber(string.sub(member, at, colon - 1))
    words[#words + 1] = string.sub(member, colon + 1, colon + size)
    at = colon + size + 1
  end
  local reply = redis.pcall('XADD', KEYS[1], unpack(words))
  if type(reply) == 'table' and reply.err then return reply end
  redis.call('ZREM', KEYS[2], member)
end
return #due
"""
# KEYS: stream, retries. ARGV: group, the most messages. Returns rows of XPENDING.
_DUE_RETRIES = _NOW + b"""
local rows = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', whole(now), 'LIMIT', 0, ARGV[2])) do
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if row then rows[#rows + 1] = row else redis.call('ZREM', KEYS[2], id) end
end
return rows
"""
# KEYS: stream, retries. ARGV: group, consumer, idle milliseconds (-1: only retries that are due), deliveries or '',
# IDs. Returns entries as XCLAIM.
_CLAIM = _NOW + b"""
local claimed = {}
for i = 5, #ARGV do
  local id, idle = ARGV[i], ARGV[3]
  local due = tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
  if due and due <= now or not due and idle ~= '-1' then
    if due then
      idle = 0
      redis.call('ZREM', KEYS[2], id)
    end
    local words = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], idle, id}
    if ARGV[4] ~= '' then
      words[7] = 'RETRYCOUNT'
      words[8] = ARGV[4]
    end
    claimed[#claimed + 1] = redis.call(unpack(words))[1]
  end
end
return claimed
"""
# KEYS: stream, retries. ARGV: group, consumer, deliveries, the number of options of XCLAIM, these, IDs. Returns the IDs
# of messages that still belong to the consumer, and are not on hold.
_KEEP = _NOW + b"""
local kept, words, options = {}, {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ''}, tonumber(ARGV[4])
for i = 1, options do words[6 + i] = ARGV[4 + i] end
words[7 + options] = 'JUSTID'
for i = 5 + options, #ARGV do
  local id = ARGV[i]
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])[1]
  local due = tonumber(redis.call('ZSCORE', KEYS[2], id) or nil)
  if row and row[4] == tonumber(ARGV[3]) and not (due and due > now) then
    words[6] = id
    redis.call(unpack(words))
    kept[#kept + 1] = id
  end
end
return kept
"""
# KEYS: stream, retries. ARGV: group, consumer, 'renew', 'ack', 'at' or 'in', milliseconds or for 'ack' a policy, then
# IDs with their deliveries. Returns the IDs that no longer belong to the consumer.
_LEASE = _NOW + b"""
local due = tonumber(ARGV[4])
if ARGV[3] == 'in' then due = due + time[1] * 1000 + math.ceil(time[2] / 1000) end
local lost = {}
for i = 5, #ARGV, 2 do
  local id, deliveries = ARGV[i], tonumber(ARGV[i + 1])
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])[1]
  if not row or (row[4] ~= deliveries and row[4] ~= deliveries - 1) then
    lost[#lost + 1] = id
  elseif ARGV[3] == 'ack' then
    if ARGV[4] == '' then
      redis.call('XACK', KEYS[1], ARGV[1], id)
    else
      redis.call('XACKDEL', KEYS[1], ARGV[1], ARGV[4], 'IDS', 1, id)
    end
    redis.call('ZREM', KEYS[2], id)
  else
    if ARGV[3] ~= 'renew' then redis.call('ZADD', KEYS[2], whole(due), id, '+inf', '') end
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', deliveries, 'JUSTID')
  end
end
return lost
"""
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
  end
  return #rows, #rows < most
end
"""
# KEYS: stream, retries. ARGV: group, idle milliseconds, receiver or '', the most messages. Returns whether there is
# more to do, and for each consumer its name, the number of messages that were handed on, and whether it was deleted.
_COLLECT = _NOW + _HAND_ON + b"""
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
"""
# KEYS: stream. ARGV: group, consumer, and the receiver if there is one. Returns whether it was deleted, and the number
# of its messages.
_DELETE_CONSUMER = b"""
local rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
local moved = 0
while rows[1] do
  if not ARGV[3] then return {0, 0} end
  for _, row in ipairs(rows) do
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, row[1], 'IDLE', row[3], 'JUSTID')
  end
  moved = moved + #rows
  rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000, ARGV[2])
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return {1, moved}
"""


def _eval(source: bytes, keys: Sequence[bytes], *args: bytes) -> list[bytes]:
    return [b"EVAL", source, b"%d" % len(keys), *keys, *args]


def _keys(group: GroupLike) -> tuple[bytes, bytes]:
    return group.stream.key, retries_key(group.stream.key, group.key)


def add_delayed(stream: bytes, kind: bytes, ms: int, words: Sequence[bytes]) -> list[bytes]:
    """Return the command that stores an entry until it is due; its reply is that time in milliseconds since 1970.

    kind: b"at" for a time in milliseconds since 1970, b"in" for a number of milliseconds. words: XADD's, after the key.
    """
    entry = b"".join(b"%d:%b" % (len(word), word) for word in words)
    return _eval(_ADD_DELAYED, [delayed_key(stream)], kind, b"%d" % ms, entry)


def deliver_due(stream: bytes) -> list[bytes]:
    """Return the command that adds up to STEP_SIZE due entries to the stream; its reply is their number."""
    return _eval(_DELIVER_DUE, [stream, delayed_key(stream)], b"%d" % STEP_SIZE)


def due_retries(group: GroupLike) -> list[bytes]:
    """Return the command that lists up to STEP_SIZE messages whose retry is due, as rows of XPENDING."""
    return _eval(_DUE_RETRIES, _keys(group), group.key, b"%d" % STEP_SIZE)


def claim(group: GroupLike, consumer: bytes, idle_ms: int, ids: Sequence[bytes],
          deliveries: int | None = None) -> list[bytes]:  # fmt: skip
    """Return the command that claims messages as XCLAIM does, except those whose retry is not due."""
    number = b"" if deliveries is None else b"%d" % deliveries
    return _eval(_CLAIM, _keys(group), group.key, consumer, b"%d" % idle_ms, number, *ids)


def keep(group: GroupLike, consumer: bytes, deliveries: int, options: Sequence[bytes],
         ids: Sequence[bytes]) -> list[bytes]:  # fmt: skip
    """Return the command that renews those messages that still belong to a consumer, with options of XCLAIM.

    Its reply has the IDs of these messages; deliveries: their number in the group.
    """
    number = b"%d" % len(options)
    return _eval(_KEEP, _keys(group), group.key, consumer, b"%d" % deliveries, number, *options, *ids)


def lease(group: GroupLike, consumer: bytes, action: bytes, messages: Sequence[Any],
          detail: int | bytes = b"") -> list[bytes]:  # fmt: skip
    """Return the command that renews (b"renew"), acknowledges (b"ack") or holds (b"at", b"in") messages of a consumer.

    detail: the milliseconds of a hold, or the policy with which acknowledged entries are deleted. The reply has the IDs
    of the messages that no longer belong to the consumer; nothing happens to these.
    """
    more = b"%d" % detail if isinstance(detail, int) else detail
    words = [word for one in messages for word in (one.raw_id, b"%d" % one.deliveries)]
    return _eval(_LEASE, _keys(group), group.key, consumer, action, more, *words)


def collect(group: GroupLike, idle_ms: int, to: bytes) -> list[bytes]:
    """Return the command that collects silent consumers, and hands on up to STEP_SIZE messages; to: b"" for any."""
    return _eval(_COLLECT, _keys(group), group.key, b"%d" % idle_ms, to, b"%d" % STEP_SIZE)


def delete_consumer(group: GroupLike, consumer: bytes, to: bytes | None) -> list[bytes]:
    """Return the command that deletes a consumer; to: the receiver of its messages, None if it must have none."""
    return _eval(_DELETE_CONSUMER, [group.stream.key], group.key, consumer, *([] if to is None else [to]))


__all__ = [
    "MOST_WORDS",
    "STEP_SIZE",
    "add_delayed",
    "claim",
    "collect",
    "delete_consumer",
    "deliver_due",
    "due_retries",
    "keep",
    "lease",
]  # fmt: skip
