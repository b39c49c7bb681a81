"""`cmsgpack`: MessagePack for scripts, with the results and the limits of Redis's lua_cmsgpack.c.

- A number with an integer value is packed as the shortest integer, another one as a float if that loses nothing, else
  as a double. A table with the keys 1 to n is an array, also the empty table; another one is a map. Every other value
  is nil.
- Tables below the 16th level are packed as nil, which ends circular references.
- `pack` joins the forms of all its arguments; `unpack` returns all values of a string. `unpack_one(s, offset)` and
  `unpack_limit(s, limit, offset)` also return the next offset, or -1 at the end.
- The types bin and ext are a bad format. A 64-bit unsigned integer above 2^63 becomes negative.
- The C functions recurse on the C stack and are limited by the slots of Lua's stack; so are these.

Sources: lua_cmsgpack.c of Redis 7.0.15 and newer (the same in all versions).
"""

from __future__ import annotations

SOURCE = rb"""
local G, support, numbers, copyright = ...
local byte, char, format, sub = G.string.byte, G.string.char, G.string.format, G.string.sub
local concat, floor, huge = G.table.concat, G.math.floor, G.math.huge
local error, next, rawget, select, type, unpack = G.error, G.next, G.rawget, G.select, G.type, G.unpack
local raise, bad_argument = support.raise, support.bad_argument
local to_string, to_integer = support.to_string, support.to_integer
local cast_int32, MAX_STACK = support.cast_int32, support.max_stack
local word, double, float, is_float = numbers.word, numbers.double, numbers.float, numbers.is_float
local read_float, read_double = numbers.read_float, numbers.read_double
local INT_MAX, MAX_NESTING = 2147483647, 16

local function half(value) return char(floor(value / 256), value % 256) end

-- mp_encode_int: `value` has an integer value between -2^63 and 2^63.
local function packed_integer(value)
    if value >= 0 then
        if value < 128 then return char(value) end
        if value < 256 then return '\204' .. char(value) end
        if value < 65536 then return '\205' .. half(value) end
        if value < 4294967296 then return '\206' .. word(value) end
        local high = floor(value / 4294967296)
        return '\207' .. word(high) .. word(value - high * 4294967296)
    end
    if value >= -32 then return char(value + 256) end
    if value >= -128 then return '\208' .. char(value + 256) end
    if value >= -32768 then return '\209' .. half(value + 65536) end
    if value >= -2147483648 then return '\210' .. word(value + 4294967296) end
    local high = floor(value / 4294967296)
    return '\211' .. word(high + 4294967296) .. word(value - high * 4294967296)
end

local function packed_number(value)
    if value >= -9223372036854775808 and value < 9223372036854775808 and floor(value) == value then
        return packed_integer(value)
    end
    if is_float(value) then return '\202' .. float(value) end
    return '\203' .. double(value)
end

local function string_header(length)
    if length < 32 then return char(160 + length) end
    if length < 256 then return '\217' .. char(length) end
    if length < 65536 then return '\218' .. half(length) end
    return '\219' .. word(length % 4294967296)
end

-- The header of an array or a map.
local function table_header(length, fixed, large)
    if length < 16 then return char(fixed + length) end
    if length < 65536 then return char(large) .. half(length) end
    return char(large + 1) .. word(length)
end

-- table_is_an_array, and the number of keys.
local function is_array(value)
    local count, max, array = 0, 0, true
    for key in next, value do
        count = count + 1
        if array then
            if type(key) ~= 'number' or key <= 0 or key > INT_MAX or floor(key) ~= key then
                array = false
            elseif key > max then
                max = key
            end
        end
    end
    return array and max == count, count
end

-- mp_encode_lua_type: append the form of `value` to `out` behind its first `count` pieces; return the new count.
local function append(out, count, value, level)
    local kind = type(value)
    count = count + 1
    if kind == 'string' then
        out[count] = string_header(#value)
        count = count + 1
        out[count] = value
    elseif kind == 'number' then
        out[count] = packed_number(value)
    elseif kind == 'boolean' then
        out[count] = value and '\195' or '\194'
    elseif kind == 'table' and level ~= MAX_NESTING then
        local array, length = is_array(value)
        if array then
            out[count] = table_header(length, 144, 220)
            for index = 1, length do count = append(out, count, rawget(value, index), level + 1) end
        else
            out[count] = table_header(length, 128, 222)
            for key, element in next, value do
                count = append(out, count, key, level + 1)
                count = append(out, count, element, level + 1)
            end
        end
    else
        out[count] = '\192'
    end
    return count
end

local MISSING, BAD_FORMAT = 'Missing bytes in input.', 'Bad data format in input.'

local function missing(text, at, length)
    if #text - at + 1 < length then raise(MISSING) end
end

local read

local function read_array(text, at, length, used)
    if used + 2 > MAX_STACK then raise('stack overflow (in function mp_decode_to_lua_array)') end
    local array = {}
    for index = 1, length do array[index], at = read(text, at, used + 2) end
    return array, at
end

local function read_map(text, at, length, used)
    local map = {}
    for _ = 1, length do
        local key, value
        key, at = read(text, at, used + 1)
        value, at = read(text, at, used + 2)
        if key == nil then error('table index is nil', 0) end
        if key ~= key then error('table index is NaN', 0) end
        map[key] = value
    end
    return map, at
end

local function read_string(text, at, length)
    missing(text, at, length)
    return sub(text, at, at + length - 1), at + length
end

local function read_word(text, at)
    missing(text, at, 5)
    local a, b, c, d = byte(text, at + 1, at + 4)
    return ((a * 256 + b) * 256 + c) * 256 + d
end

local function read_half(text, at)
    missing(text, at, 3)
    local a, b = byte(text, at + 1, at + 2)
    return a * 256 + b
end

-- A 64-bit integer. The halves are exact and their sum is rounded once, as C's conversion is.
local function read_long(text, at)
    missing(text, at, 9)
    local a, b, c, d, e, f, g, h = byte(text, at + 1, at + 8)
    if a >= 128 then a = a - 256 end
    return (((a * 256 + b) * 256 + c) * 256 + d) * 4294967296 + (((e * 256 + f) * 256 + g) * 256 + h), at + 9
end

-- The forms that have a whole byte as their mark.
local READERS = {
    [192] = function(text, at) return nil, at + 1 end,
    [194] = function(text, at) return false, at + 1 end,
    [195] = function(text, at) return true, at + 1 end,
    [202] = function(text, at)
        missing(text, at, 5)
        return read_float(byte(text, at + 1, at + 4)), at + 5
    end,
    [203] = function(text, at)
        missing(text, at, 9)
        return read_double(byte(text, at + 1, at + 8)), at + 9
    end,
    [204] = function(text, at)
        missing(text, at, 2)
        return byte(text, at + 1), at + 2
    end,
    [205] = function(text, at) return read_half(text, at), at + 3 end,
    [206] = function(text, at) return read_word(text, at), at + 5 end,
    [207] = read_long,
    [208] = function(text, at)
        missing(text, at, 2)
        local value = byte(text, at + 1)
        return value < 128 and value or value - 256, at + 2
    end,
    [209] = function(text, at)
        local value = read_half(text, at)
        return value < 32768 and value or value - 65536, at + 3
    end,
    [210] = function(text, at)
        local value = read_word(text, at)
        return value < 2147483648 and value or value - 4294967296, at + 5
    end,
    [211] = read_long,
    [217] = function(text, at)
        missing(text, at, 2)
        return read_string(text, at + 2, byte(text, at + 1))
    end,
    [218] = function(text, at) return read_string(text, at + 3, read_half(text, at)) end,
    [219] = function(text, at) return read_string(text, at + 5, read_word(text, at)) end,
    [220] = function(text, at, used) return read_array(text, at + 3, read_half(text, at), used) end,
    [221] = function(text, at, used) return read_array(text, at + 5, read_word(text, at), used) end,
    [222] = function(text, at, used) return read_map(text, at + 3, read_half(text, at), used) end,
    [223] = function(text, at, used) return read_map(text, at + 5, read_word(text, at), used) end,
}

-- mp_decode_to_lua_type: the value at `at`, and the position behind it.
function read(text, at, used)
    local mark = byte(text, at)
    if mark == nil then raise(MISSING) end
    if used + 1 > MAX_STACK then
        raise('stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)')
    end
    if mark < 128 then return mark, at + 1 end
    if mark >= 224 then return mark - 256, at + 1 end
    if mark < 144 then
        local value, behind = read_map(text, at + 1, mark - 128, used)
        return value, behind
    elseif mark < 160 then
        local value, behind = read_array(text, at + 1, mark - 144, used)
        return value, behind
    elseif mark < 192 then
        local value, behind = read_string(text, at + 1, mark - 160)
        return value, behind
    end
    local reader = READERS[mark]
    if reader == nil then raise(BAD_FORMAT) end
    local value, behind = reader(text, at, used)
    return value, behind
end

-- mp_unpack_full. `used` counts the arguments that are on the stack.
local function unpack_values(text, limit, offset, used)
    if offset < 0 or limit < 0 then
        raise(format('Invalid request to unpack with offset of %d and limit of %d.', cast_int32(offset),
            cast_int32(#text)))
    elseif offset > #text then
        raise(format('Start offset %d greater than input length %d.', cast_int32(offset), cast_int32(#text)))
    end
    local all = limit == 0 and offset == 0
    if all then limit = INT_MAX end
    local values, count, at, last = {}, 0, offset + 1, #text
    while at <= last and count < limit do
        values[count + 1], at = read(text, at, used + count)
        count = count + 1
    end
    if all then return unpack(values, 1, count) end
    if used + count + 1 > MAX_STACK then raise('stack overflow (in function mp_unpack_full)') end
    return at > last and -1 or at - 1, unpack(values, 1, count)
end

local function collect(...) return select('#', ...), {...} end

-- The fields are set in the order of luaopen_create, so that `pairs` shows them in Redis's order.
local module = {}
function module.pack(...)
    local count = select('#', ...)
    if count == 0 then bad_argument(0, 'MessagePack pack needs input.') end
    if count * 2 > MAX_STACK then bad_argument(0, 'Too many arguments for MessagePack pack.') end
    local out = {}
    if count == 1 then
        append(out, 0, ..., 0)
    else
        local values, pieces = {...}, 0
        for index = 1, count do pieces = append(out, pieces, values[index], 0) end
    end
    out = concat(out)
    return out
end
function module.unpack(...)
    local count = select('#', ...)
    local text = to_string(1, ..., count)
    local results, values = collect(unpack_values(text, 0, 0, count))
    return unpack(values, 1, results)
end
function module.unpack_one(...)
    local count = select('#', ...)
    local text, offset = ...
    offset = offset == nil and 0 or to_integer(2, offset, count)
    text = to_string(1, text, count)
    local results, values = collect(unpack_values(text, 1, offset, 1))
    return unpack(values, 1, results)
end
function module.unpack_limit(...)
    local count = select('#', ...)
    local text, limit, offset = ...
    limit = to_integer(2, limit, count)
    offset = offset == nil and 0 or to_integer(3, offset, count)
    text = to_string(1, text, count)
    local results, values = collect(unpack_values(text, limit, offset, 1))
    return unpack(values, 1, results)
end
module._NAME = 'cmsgpack'
module._VERSION = 'lua-cmsgpack 0.4.0'
module._COPYRIGHT = copyright
module._DESCRIPTION = 'MessagePack C implementation for Lua'
return support.publish(module)
"""
