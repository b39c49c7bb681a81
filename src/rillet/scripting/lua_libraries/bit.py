"""`bit`: operations on 32-bit integers, with the results of Redis's lua_bit.c.

Arguments are doubles. The C library adds 2^52 + 2^51, which rounds half to even and leaves the integer in the low bits
of the double; it takes the low 32 bits, also from doubles for which that trick does not work. Results are signed.

`band` looks pairs of bytes up in a table of 65,536 results, which the first use builds (7 ms, 1 MB); the other
operations follow from it: a | b = a + b - (a & b), a ~ b = a + b - 2 (a & b). A call takes 0.2 to 0.3 microseconds, a
third of a call into Python.

`tohex(x, -2147483648)` writes eight digits, as newer versions do. In 7.0.15 it overflows (CVE-2024-31449).

Sources: lua_bit.c of Redis 7.0.15 and newer.
"""

from __future__ import annotations

SOURCE = rb"""
local G, support = ...
local format, sub, upper = G.string.format, G.string.sub, G.string.upper
local abs, floor, frexp, huge = G.math.abs, G.math.floor, G.math.frexp, G.math.huge
local select, tonumber, type = G.select, G.tonumber, G.type
local bad_type = support.bad_type

-- barg: the unsigned 32 bits of an argument.
local function bits(number, value, count)
    local converted = value
    if type(value) ~= 'number' then
        converted = tonumber(value)
        if converted == nil then bad_type(number, 'number', value, count) end
    end
    local sum = converted + 6755399441055744
    if sum >= 4503599627370496 and sum < 9007199254740992 then return sum % 4294967296 end
    -- The integer does not fit: the low bits of the double are the low bits of its fraction.
    if sum == 0 or sum - sum ~= 0 then return 0 end
    return abs(frexp(sum)) * 9007199254740992 % 4294967296
end

local function signed(value)
    if value >= 2147483648 then return value - 4294967296 end
    return value
end

local pairs_of_bytes

local function build()
    local nibbles = {}
    for a = 0, 15 do
        for b = 0, 15 do
            local result, place, x, y = 0, 1, a, b
            while x > 0 and y > 0 do
                if x % 2 == 1 and y % 2 == 1 then result = result + place end
                x, y, place = floor(x / 2), floor(y / 2), place * 2
            end
            nibbles[a * 16 + b] = result
        end
    end
    local built = {}
    for a = 0, 255 do
        local low = a % 16
        local high = a - low
        for b = 0, 255 do
            built[a * 256 + b] = nibbles[high + floor(b / 16)] * 16 + nibbles[low * 16 + b % 16]
        end
    end
    pairs_of_bytes = built
end

local function band(a, b)
    local known = pairs_of_bytes
    local a0, b0 = a % 256, b % 256
    a, b = (a - a0) / 256, (b - b0) / 256
    local a1, b1 = a % 256, b % 256
    a, b = (a - a1) / 256, (b - b1) / 256
    local a2, b2 = a % 256, b % 256
    return known[a0 * 256 + b0] + known[a1 * 256 + b1] * 256 + known[a2 * 256 + b2] * 65536
        + known[a - a2 + (b - b2) / 256] * 16777216
end

local function bor(a, b) return a + b - band(a, b) end
local function bxor(a, b) return a + b - 2 * band(a, b) end

-- An operation on any number of arguments. The C function reads the first argument, then the others from the last to
-- the second; an error names the first bad one in this order.
local function fold(operation)
    return function(...)
        if pairs_of_bytes == nil then build() end
        local count = select('#', ...)
        local first, second = ...
        local result = bits(1, first, count)
        if count == 2 then
            return signed(operation(result, (bits(2, second, 2))))
        end
        for index = count, 2, -1 do
            result = operation(result, (bits(index, select(index, ...), count)))
        end
        return signed(result)
    end
end

local function shift(operation)
    return function(...)
        local count = select('#', ...)
        local value, places = ...
        value = bits(1, value, count)
        places = bits(2, places, count) % 32
        return signed(operation(value, places, 2 ^ places))
    end
end

local function rol(value, places, power)
    local low = value % (4294967296 / power)
    return low * power + (value - low) / (4294967296 / power)
end

return support.publish {
    tobit = function(...) return signed(bits(1, ..., select('#', ...))) end,
    bnot = function(...) return signed(4294967295 - bits(1, ..., select('#', ...))) end,
    band = fold(band), bor = fold(bor), bxor = fold(bxor),
    lshift = shift(function(value, places, power) return value * power % 4294967296 end),
    rshift = shift(function(value, places, power) return floor(value / power) end),
    arshift = shift(function(value, places, power) return floor(signed(value) / power) % 4294967296 end),
    rol = shift(rol),
    ror = shift(function(value, places, power)
        if places == 0 then return value end
        return rol(value, 32 - places, 4294967296 / power)
    end),
    bswap = function(...)
        local value = bits(1, ..., select('#', ...))
        local a = value % 256
        value = (value - a) / 256
        local b = value % 256
        value = (value - b) / 256
        local c = value % 256
        return signed(((a * 256 + b) * 256 + c) * 256 + (value - c) / 256)
    end,
    tohex = function(...)
        local count = select('#', ...)
        local value, digits = ...
        value = bits(1, value, count)
        digits = count < 2 and 8 or signed(bits(2, digits, count))
        local text = format('%08x', value)
        if digits < 0 then digits, text = -digits, upper(text) end
        if digits >= 8 then return text end
        if digits == 0 then return '' end
        return sub(text, -digits)
    end,
}
"""
