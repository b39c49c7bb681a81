"""`struct`: numbers and strings as bytes, with the results of Redis's lua_struct.c.

A format is a sequence of options: `>` and `<` choose the byte order, `!n` the alignment; `b h l i` and the capitals
`B H L I T` are integers (`in` has n bytes, at most 32), `f` and `d` floating point, `s` a string that a zero byte ends,
`cn` n bytes (`c0` the whole string, or as many bytes as the number before it says), `x` a byte of padding.

Quirks that are kept: an argument that is absent is nil and not "no value" (the C function pushes a nil behind the
arguments); `c` names the following argument if a string is too short; integers of more than 8 bytes are neither
extended by their sign nor read beyond 8 bytes, and their sign is tested at the bit of their size modulo 64; a format
ends at a zero byte; `size` accepts unknown letters.

Sources: lua_struct.c of Redis 7.0.15 and newer (the same in all versions). Sizes are those of 64-bit Linux.
"""

from __future__ import annotations

SOURCE = rb"""
local G, support, numbers = ...
local byte, char, find, format, match = G.string.byte, G.string.char, G.string.find, G.string.format, G.string.match
local rep, reverse, sub = G.string.rep, G.string.reverse, G.string.sub
local concat, floor = G.table.concat, G.math.floor
local select, tonumber, type, unpack = G.select, G.tonumber, G.type, G.unpack
local raise, bad_argument = support.raise, support.bad_argument
local to_string, to_number, to_integer = support.to_string, support.to_number, support.to_integer
local cast_int64, MAX_STACK = support.cast_int64, support.max_stack
local word, double, float = numbers.word, numbers.double, numbers.float
local read_float, read_double = numbers.read_float, numbers.read_double
local INT_MAX, MAX_INTEGER_SIZE, MAX_ALIGNMENT = 2147483647, 32, 8

local SIZES = {B = 1, b = 1, H = 2, h = 2, L = 8, l = 8, T = 8, f = 4, d = 8, x = 1}
local INTEGERS = {b = true, B = true, h = true, H = true, l = true, L = true, T = true, i = true, I = true}
local SIGNED = {b = true, h = true, l = true, i = true}

-- getnum: the decimal number at `at` in the format, or the default; and the position behind it.
local function number_at(layout, at, default)
    local digits = match(layout, '^%d+', at)
    if digits == nil then return default, at end
    local value = tonumber(digits)
    if value > INT_MAX then raise('integral size overflow') end
    return value, at + #digits
end

-- optsize
local function size_of(option, layout, at)
    local size = SIZES[option]
    if size ~= nil then return size, at end
    if option == 'c' then return number_at(layout, at, 1) end
    if option == 'i' or option == 'I' then
        size, at = number_at(layout, at, 4)
        if size > MAX_INTEGER_SIZE then
            raise(format('integral size %d is larger than limit of %d', size, MAX_INTEGER_SIZE))
        end
        return size, at
    end
    return 0, at
end

-- a & b for small integers.
local function band(a, b)
    local result, place = 0, 1
    while b > 0 do
        if a % 2 == 1 and b % 2 == 1 then result = result + place end
        a, b, place = floor(a / 2), floor(b / 2), place * 2
    end
    return result
end

-- gettoalign: the bytes of padding in front of an element.
local function padding(position, alignment, option, size)
    if size == 0 or option == 'c' then return 0 end
    if size > alignment then size = alignment end
    if size == 1 then return 0 end
    return band(size - band(position, size - 1), size - 1)
end

-- controloptions: the byte order, the alignment and the position behind the option.
local function control(option, layout, at, big, alignment)
    if option == ' ' then
        return big, alignment, at
    elseif option == '>' then
        return true, alignment, at
    elseif option == '<' then
        return false, alignment, at
    elseif option == '!' then
        local value
        value, at = number_at(layout, at, MAX_ALIGNMENT)
        local power = value
        while power > 1 and power % 2 == 0 do power = power / 2 end
        if power ~= 1 then raise(format('alignment %d is not a power of 2', value)) end
        return big, value, at
    end
    bad_argument(1, "invalid format option '" .. option .. "'")
end

-- putinteger, after its argument check: C casts a negative double to a signed integer, and another one to an unsigned
-- one. The casts that C leaves undefined give what x86-64 gives.
local function integer_bytes(value, big, size)
    local high, low
    if value < 0 then
        value = cast_int64(value)
        high = floor(value / 4294967296)
        low = value - high * 4294967296
        if high < 0 then high = high + 4294967296 end
    elseif value < 18446744073709551616 then
        value = floor(value)
        high = floor(value / 4294967296)
        low = value - high * 4294967296
    elseif value ~= value then
        high, low = 2147483648, 0
    else
        high, low = 0, 0
    end
    local bytes = word(high) .. word(low)
    if size <= 8 then
        bytes = size == 0 and '' or sub(bytes, -size)
    else
        bytes = rep('\0', size - 8) .. bytes
    end
    return big and bytes or reverse(bytes)
end

-- getinteger
local function read_integer(data, at, big, is_signed, size)
    if size == 0 then return 0 end
    local bytes = sub(data, at, at + size - 1)
    if not big then bytes = reverse(bytes) end
    local high, low = 0, 0
    local first = size > 8 and size - 7 or 1
    for index = first, size do
        local value = byte(bytes, index)
        if size - index >= 4 then high = high * 256 + value else low = low * 256 + value end
    end
    if is_signed then
        local places = (size * 8 - 1) % 64
        -- If the value has a bit at or above `places`, all of these bits are set.
        if places >= 32 then
            local power = 2 ^ (places - 32)
            if high >= power then high = high % power - power end
        else
            local power = 2 ^ places
            if high > 0 or low >= power then return low % power - power end
        end
    end
    return high * 4294967296 + low
end

-- luaL_checkstring of a format: a zero byte ends it.
local function layout_of(value, count)
    local text = to_string(1, value, count)
    return find(text, '%z') and match(text, '^[^%z]*') or text
end

return support.publish {
    pack = function(...)
        local count = select('#', ...)
        local arguments = {...}
        local layout = layout_of(arguments[1], count)
        local out, pieces, argument, position = {}, 0, 2, 0
        local big, alignment = false, 1
        local at, last = 1, #layout
        while at <= last do
            local option, size = sub(layout, at, at)
            size, at = size_of(option, layout, at + 1)
            local gap = padding(position, alignment, option, size)
            if gap > 0 then
                pieces = pieces + 1
                out[pieces] = rep('\0', gap)
                position = position + gap
            end
            pieces = pieces + 1
            if INTEGERS[option] then
                out[pieces] = integer_bytes(to_number(argument, arguments[argument], argument), big, size)
                argument = argument + 1
            elseif option == 'x' then
                out[pieces] = '\0'
            elseif option == 'f' or option == 'd' then
                local value = to_number(argument, arguments[argument], argument)
                local bytes = option == 'f' and float(value) or double(value)
                out[pieces] = big and bytes or reverse(bytes)
                argument = argument + 1
            elseif option == 'c' or option == 's' then
                local text = to_string(argument, arguments[argument], argument)
                argument = argument + 1
                if size == 0 then
                    size = #text
                elseif #text < size then
                    bad_argument(argument, 'string too short')
                end
                out[pieces] = size == #text and text or sub(text, 1, size)
                if option == 's' then
                    pieces = pieces + 1
                    out[pieces] = '\0'
                    size = size + 1
                end
            else
                pieces = pieces - 1
                big, alignment, at = control(option, layout, at, big, alignment)
            end
            position = position + size
        end
        out = concat(out)
        return out
    end,
    unpack = function(...)
        local count = select('#', ...)
        local layout, data, position = ...
        layout = layout_of(layout, count)
        data = to_string(2, data, count)
        position = position == nil and 1 or to_integer(3, position, count)
        if position == 0 then bad_argument(3, 'offset must be 1 or greater') end
        position = position - 1
        local results, values = 0, {}
        local big, alignment = false, 1
        local at, last, length = 1, #layout, #data
        while at <= last do
            local option, size = sub(layout, at, at)
            size, at = size_of(option, layout, at + 1)
            position = position + padding(position, alignment, option, size)
            -- A negative position is a huge one in C.
            if position < 0 or position + size > length then bad_argument(2, 'data string too short') end
            if results + count + 2 > MAX_STACK then raise('stack overflow (too many results)') end
            if INTEGERS[option] then
                results = results + 1
                values[results] = read_integer(data, position + 1, big, SIGNED[option], size)
            elseif option == 'f' then
                local bytes = sub(data, position + 1, position + 4)
                results = results + 1
                values[results] = read_float(byte(big and bytes or reverse(bytes), 1, 4))
            elseif option == 'd' then
                local bytes = sub(data, position + 1, position + 8)
                results = results + 1
                values[results] = read_double(byte(big and bytes or reverse(bytes), 1, 8))
            elseif option == 'c' then
                if size == 0 then
                    local previous = tonumber(values[results])
                    if results == 0 or previous == nil then raise("format 'c0' needs a previous size") end
                    -- C casts the number to an unsigned integer; what does not fit becomes 0.
                    if previous < 0 then
                        size = cast_int64(previous)
                    else
                        size = previous < 18446744073709551616 and floor(previous) or 0
                    end
                    if previous ~= previous then size = -1 end
                    results = results - 1
                    if not (size >= 0 and position + size <= length) then
                        bad_argument(2, 'data string too short')
                    end
                end
                results = results + 1
                values[results] = sub(data, position + 1, position + size)
            elseif option == 's' then
                local stop = find(data, '%z', position + 1)
                if stop == nil then raise('unfinished string in data') end
                results = results + 1
                values[results] = sub(data, position + 1, stop - 1)
                size = stop - position
            elseif option ~= 'x' then
                big, alignment, at = control(option, layout, at, big, alignment)
            end
            position = position + size
        end
        values[results + 1] = position + 1
        return unpack(values, 1, results + 1)
    end,
    size = function(...)
        local layout = layout_of(..., select('#', ...))
        local big, alignment, position = false, 1, 0
        local at, last = 1, #layout
        while at <= last do
            local option, size = sub(layout, at, at)
            size, at = size_of(option, layout, at + 1)
            position = position + padding(position, alignment, option, size)
            if option == 's' then
                bad_argument(1, "option 's' has no fixed size")
            elseif option == 'c' and size == 0 then
                bad_argument(1, "option 'c0' has no fixed size")
            end
            if not find(option, '%w') then big, alignment, at = control(option, layout, at, big, alignment) end
            position = position + size
        end
        return position
    end,
}
"""
