"""The base of the Lua libraries: errors as C functions raise them.

Redis's libraries are written in C; these are written in Lua, because a call from Lua to Python costs three times as
much as the longest of `bit`'s functions, and because no Python object becomes visible to a script. Three things differ
between a function in C and a function in Lua, and this module hides them:

- `luaL_error` puts the position of the *caller* before its text. `raise` walks up to the library's public function
  (the nested functions below it are our own), and takes the position of the frame above it.
- `luaL_argerror` names the function as its caller does: `encode` for `cjson.encode(x)`, `?` below `pcall`. It counts
  arguments without `self` if the caller wrote a colon. The debug library reports both.
- `lua_checkstack` refuses more than 8000 slots in one C function (LUAI_MAXCSTACK in luaconf.h). The libraries count the
  slots that the C function would use, so that deep values fail at the same depth with the same text.

A chunk of a library receives the interpreter's globals and the table of this chunk. It keeps the functions that it
needs as locals, so nothing that a script does to a global or to a metatable changes a library. The chunk's environment
is an empty table: a script that asks for the environment of a function finds nothing.

Sources: luaL_error, luaL_argerror, luaL_typerror, luaL_checkinteger and luaL_checkoption in Lua's lauxlib.c.
"""

from __future__ import annotations

SOURCE = rb"""
local G = ...
local error, format, getinfo = G.error, G.string.format, G.debug.getinfo
local select, setmetatable, tonumber, tostring, type = G.select, G.setmetatable, G.tonumber, G.tostring, G.type
local floor = G.math.floor

-- The public functions of all libraries: function -> true.
local public = setmetatable({}, {__mode = 'k'})

-- The level, as the caller's caller counts, of the public function that runs.
local function public_level()
    local level = 3
    while true do
        local frame = getinfo(level, 'f')
        if frame == nil then return nil end
        if public[frame.func] then return level - 1 end
        level = level + 1
    end
end

local function position(level)
    local frame = getinfo(level + 1, 'Sl')
    if frame ~= nil and frame.currentline > 0 then return frame.short_src .. ':' .. frame.currentline .. ': ' end
    return ''
end

-- luaL_error
local function raise(text)
    local level = public_level()
    if level ~= nil then text = position(level + 1) .. text end
    error(text, 0)
end

-- luaL_argerror
local function bad_argument(number, text)
    local level = public_level()
    local where, name = '', '?'
    if level ~= nil then
        where = position(level + 1)
        local frame = getinfo(level, 'n')
        name = frame.name or '?'
        if frame.namewhat == 'method' then
            number = number - 1
            if number == 0 then
                error(where .. "calling '" .. name .. "' on bad self (" .. text .. ')', 0)
            end
        end
    end
    error(where .. 'bad argument #' .. number .. " to '" .. name .. "' (" .. text .. ')', 0)
end

-- luaL_typerror. `count` is the number of arguments of the call: an absent argument has no type.
local function bad_type(number, expected, value, count)
    bad_argument(number, expected .. ' expected, got ' .. (number > count and 'no value' or type(value)))
end

-- luaL_checklstring
local function to_string(number, value, count)
    local kind = type(value)
    if kind == 'string' then return value end
    if kind == 'number' then return tostring(value) end
    bad_type(number, 'string', value, count)
end

-- luaL_checknumber
local function to_number(number, value, count)
    if type(value) == 'number' then return value end
    local converted = tonumber(value)
    if converted == nil then bad_type(number, 'number', value, count) end
    return converted
end

-- A double as C casts it to a signed 64-bit integer on x86-64.
local function cast_int64(value)
    if value >= -9223372036854775808 and value < 9223372036854775808 then
        if value < 0 then return -floor(-value) end
        return floor(value)
    end
    return -9223372036854775808
end

-- ... and a 64-bit integer that C casts to 32 bits.
local function cast_int32(value)
    value = value % 4294967296
    if value >= 2147483648 then return value - 4294967296 end
    return value
end

-- luaL_checkinteger
local function to_integer(number, value, count)
    return cast_int64(to_number(number, value, count))
end

-- Mark the functions of a library's table as public.
local function publish(library)
    for _, value in G.next, library do
        if type(value) == 'function' then public[value] = true end
    end
    return library
end

return {
    raise = raise, bad_argument = bad_argument, bad_type = bad_type, to_string = to_string, to_number = to_number,
    to_integer = to_integer, cast_int64 = cast_int64, cast_int32 = cast_int32, publish = publish, public = public,
    max_stack = 8000,
}
"""
