"""Filters: entries whose fields have certain values, found in the store by Lua scripts.

    search   XRANGE or XREVRANGE, a thousand entries at a time; returns those that match, and where the next call begins
    read     XREADGROUP ... >, until enough messages match; the others are acknowledged, or left

What does not match is not sent. A call examines a bounded number of entries, so it takes a few milliseconds and its
reply is no longer than that of a page; the caller repeats it. The scripts run in every kind of store. They cannot wait:
a loop waits by XREAD until the stream has a new entry (rillet.store.consuming.delivery).

Rejected: a command of rillet, which would be faster, and which Redis does not have. Rejected: filters in the client,
which receives everything; `Stream.range` uses one if the user may not run scripts, and in process, where nothing is
sent: there a page of XRANGE and a filter in Python take half the time of a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rillet.store.consuming.atomic_steps import evaluate

if TYPE_CHECKING:
    from rillet.store.message import AnyGroup

SEARCHED = 1000
"""The most entries that one call of `search` examines."""
READ = 200
"""The most messages that one call of `read` examines."""
# The words from ARGV[at] on: field, number of values, values, field ... A field that occurs twice has its last value.
WHERE = b"""
local function value_of(flat, field)
  local value
  for i = 1, #flat, 2 do if flat[i] == field then value = flat[i + 1] end end
  return value
end
local function conditions(at)
  local found = {}
  while at <= #ARGV do
    local last, values = at + 1 + ARGV[at + 1], {}
    for i = at + 2, last do values[ARGV[i]] = true end
    found[ARGV[at]] = values
    at = last + 1
  end
  return found
end
local function matches(flat, where)
  for field, values in pairs(where) do
    local value = value_of(flat, field)
    if not value or not values[value] then return false end
  end
  return true
end
"""
# The ID up to which a group has delivered, '' for an unknown one.
LAST = b"""
local function last_delivered(group)
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if value_of(flat, 'name') == group then return value_of(flat, 'last-delivered-id') end
  end
  return ''
end
"""
# KEYS: stream. ARGV: XRANGE or XREVRANGE, start, end, the most entries to return, to examine, conditions. Returns the
# ID after which the next search begins, or '', and entries.
_SEARCH = WHERE + b"""
local where, found, last = conditions(6), {}, ''
local rows = redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[5])
for _, row in ipairs(rows) do
  if matches(row[2], where) then found[#found + 1] = row end
  last = row[1]
  if #found == tonumber(ARGV[4]) then return {last, found} end
end
return {#rows == tonumber(ARGV[5]) and last or '', found}
"""
# KEYS: stream. ARGV: group, consumer, the most messages to return, 'ack' or, if others are left, the milliseconds that
# they count as idle, conditions. Returns {whether there may be more at once, the group's last delivered ID if nothing
# was found, messages}. Those that are left are as before their delivery.
_READ = WHERE + LAST + b"""
local group, most, where = ARGV[1], tonumber(ARGV[3]), conditions(5)
local found, left, more, last = {}, LEFT, 0, ''
while #found < most do
  if left <= 0 then
    more = 1
    break
  end
  local count = math.min(most - #found, left)
  local reply = redis.call('XREADGROUP', 'GROUP', group, ARGV[2], 'COUNT', count, 'STREAMS', KEYS[1], '>')
  if not reply then break end
  for _, row in ipairs(reply[1][2]) do
    left = left - 1
    if matches(row[2], where) then
      found[#found + 1] = row
    elseif ARGV[4] == 'ack' then
      redis.call('XACK', KEYS[1], group, row[1])
    else
      redis.call('XCLAIM', KEYS[1], group, ARGV[2], 0, row[1], 'IDLE', ARGV[4], 'RETRYCOUNT', 0, 'JUSTID')
    end
  end
end
if #found == 0 and more == 0 then last = last_delivered(group) end
return {more, last, found}
"""
_READ = _READ.replace(b"LEFT", b"%d" % READ)


def search(stream: bytes, command: bytes, start: bytes, end: bytes, most: int, where: Sequence[bytes]) -> list[bytes]:
    """Return the command that searches a range for up to `most` entries that match; see _SEARCH."""
    return evaluate(_SEARCH, [stream], command, start, end, b"%d" % most, b"%d" % SEARCHED, *where)


def read(group: AnyGroup, consumer: bytes, most: int, others: bytes, where: Sequence[bytes]) -> list[bytes]:
    """Return the command that reads up to `most` new messages that match; see _READ."""
    return evaluate(_READ, [group.stream.key], group.key, consumer, b"%d" % most, others, *where)
