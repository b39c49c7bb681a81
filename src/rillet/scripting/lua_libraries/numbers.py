"""IEEE 754 numbers as bytes, in Lua: the base of `cmsgpack` and `struct`.

Lua 5.1 has doubles and no integers, no bit operations and no way to see the bytes of a number. `math.frexp` and
`math.ldexp` split and join numbers exactly, so every conversion here is exact; a float is rounded half to even, as the
processor does. 64-bit integers are two halves of 32 bits, which a double holds exactly.

A NaN keeps its sign, which C's printf shows, and loses its payload, which only these two libraries could show: they
write the payload that the processor gives to `0/0`.
"""

from __future__ import annotations

SOURCE = rb"""
local G = ...
local byte, char, format, sub = G.string.byte, G.string.char, G.string.format, G.string.sub
local floor, frexp, huge, ldexp = G.math.floor, G.math.frexp, G.math.huge, G.math.ldexp

-- 32 bits as four bytes, the highest first.
local function word(value)
    local low = value % 65536
    local high = (value - low) / 65536
    return char(floor(high / 256), high % 256, floor(low / 256), low % 256)
end

local function is_negative(value)
    return value < 0 or 1 / value < 0 or (value ~= value and sub(format('%f', value), 1, 1) == '-')
end

-- The bytes of a double, the highest first.
local function double(value)
    local sign = is_negative(value) and 2147483648 or 0
    if value ~= value then return word(sign + 2146959360) .. '\0\0\0\0' end
    if value == huge or value == -huge then return word(sign + 2146435072) .. '\0\0\0\0' end
    if value == 0 then return word(sign) .. '\0\0\0\0' end
    if value < 0 then value = -value end
    local fraction, exponent = frexp(value)
    exponent = exponent + 1022
    if exponent <= 0 then
        fraction, exponent = ldexp(fraction, exponent - 1), 0
        fraction = fraction * 9007199254740992
    else
        fraction = fraction * 9007199254740992 - 4503599627370496
    end
    local high = floor(fraction / 4294967296)
    return word(sign + exponent * 1048576 + high) .. word(fraction - high * 4294967296)
end

-- The bytes of the float that is nearest to the double.
local function float(value)
    local sign = is_negative(value) and 2147483648 or 0
    if value ~= value then return word(sign + 2143289344) end
    if value < 0 then value = -value end
    if value == 0 then return word(sign) end
    -- `scaled` is the value in units of the float's last bit; adding and subtracting 2^52 rounds half to even. A
    -- fraction that rounds up to the next power of two carries into the exponent, and from there into infinity.
    local fraction, exponent = frexp(value)
    exponent = exponent + 126
    if value == huge or exponent > 254 then return word(sign + 2139095040) end
    if exponent <= 0 then
        return word(sign + (ldexp(value, 149) + 4503599627370496 - 4503599627370496))
    end
    local scaled = fraction * 16777216 + 4503599627370496 - 4503599627370496
    return word(sign + (exponent - 1) * 8388608 + scaled)
end

-- Whether a float holds the double exactly.
local function is_float(value)
    if value == 0 or value == huge or value == -huge then return true end
    local fraction, exponent = frexp(value)
    if exponent > 128 then return false end
    local scaled = exponent < -125 and ldexp(value, 149) or fraction * 16777216
    return scaled % 1 == 0
end

local NAN = 0 / 0
if is_negative(NAN) then NAN = -NAN end

local function read_float(a, b, c, d)
    local sign = 1
    if a >= 128 then a, sign = a - 128, -1 end
    local exponent = a * 2 + floor(b / 128)
    local fraction = b % 128 * 65536 + c * 256 + d
    if exponent == 255 then
        if fraction ~= 0 then return sign < 0 and -NAN or NAN end
        return sign * huge
    end
    if exponent == 0 then return sign * ldexp(fraction, -149) end
    return sign * ldexp(fraction + 8388608, exponent - 150)
end

local function read_double(a, b, c, d, e, f, g, h)
    local sign = 1
    if a >= 128 then a, sign = a - 128, -1 end
    local exponent = a * 16 + floor(b / 16)
    local fraction = (b % 16 * 65536 + c * 256 + d) * 4294967296 + ((e * 256 + f) * 256 + g) * 256 + h
    if exponent == 2047 then
        if fraction ~= 0 then return sign < 0 and -NAN or NAN end
        return sign * huge
    end
    if exponent == 0 then return sign * ldexp(fraction, -1074) end
    return sign * ldexp(fraction + 4503599627370496, exponent - 1075)
end

return {word = word, double = double, float = float, is_float = is_float, read_float = read_float,
    read_double = read_double}
"""
