"""Ordinary calls in place of tail calls, so that an error in `return cjson.decode(x)` names its line.

`return f(x)` is a tail call. In Redis `cjson.decode` is a function in C, for which Lua keeps the caller's frame; here
it is a function in Lua, which takes the place of the caller, and the position of the call is lost. So a chunk that
contains such a call is compiled, dumped, changed and loaded again:

    GETTABLE  A  cjson "decode"          GETTABLE  A  cjson "decode"
    ...                                  ...
    TAILCALL  A  B  0             ->     CALL      A  B  0
    RETURN    A  0                       RETURN    A  0

Both forms return all results of the call. Only calls of a global, of a field of a global, of a method and of a result
are changed (`unpack`, `cjson.decode`, `text:find`, `coroutine.wrap(f)()`, not `f`: no script has a global function),
and only in chunks whose source contains the name of a function that Redis has in C and rillet in Lua. So recursion by
tail calls keeps its depth.

The bytecode is that of this interpreter, never that of a script. Its form is the one of Lua 5.1 (lundump.c): for each
function its source, lines, four bytes, instructions, constants, inner functions, and three lists for debugging.
"""

from __future__ import annotations

SOURCE = rb"""
local G = ...
local byte, char, dump, find, sub = G.string.byte, G.string.char, G.string.dump, G.string.find, G.string.sub
local concat, floor, loadstring = G.table.concat, G.math.floor, G.loadstring
-- Numbers of instructions.
local MOVE, GETUPVAL, GETGLOBAL, GETTABLE, SELF, CALL, TAILCALL, CLOSURE = 0, 4, 5, 6, 11, 28, 29, 36
-- Those that write to register A.
local WRITES = {}
for _, operation in G.ipairs({27, 28, 36, 37}) do WRITES[operation] = true end
for operation = 0, 6 do WRITES[operation] = true end
for operation = 10, 21 do WRITES[operation] = true end
local HEADER = '\27Lua\81\0\1'

local function number(code, at, size)
    local value = 0
    for index = at + size - 1, at, -1 do value = value * 256 + byte(code, index) end
    return value
end

-- Whether an instruction is part of the CLOSURE before it: a variable that the new function captures.
local function is_capture(code, first, index)
    while index > 0 do
        local instruction = number(code, first + 4 * (index - 1), 4)
        local operation = instruction % 64
        if operation == CLOSURE then return true end
        if operation ~= MOVE and operation ~= GETUPVAL or floor(instruction / 64) % 256 ~= 0 then return false end
        index = index - 1
    end
    return false
end

-- Change the function that begins at `at`; return the position behind it. `out` gets the changed bytes by position.
local function change(code, at, int, size, double, out)
    local function skip_string(place)
        return place + size + number(code, place, size)
    end
    at = skip_string(at) + 2 * int + 4
    local count = number(code, at, int)
    local first = at + int
    for index = 1, count do
        local place = first + 4 * (index - 1)
        local instruction = number(code, place, 4)
        if instruction % 64 == TAILCALL then
            local target = floor(instruction / 64) % 256
            -- The instructions that put the function into its register.
            for before = index - 1, 1, -1 do
                local other = number(code, first + 4 * (before - 1), 4)
                local operation = other % 64
                if floor(other / 64) % 256 == target and WRITES[operation]
                        and (operation == CLOSURE or not is_capture(code, first, before)) then
                    -- A field: of a global, which the register had before, or of a local?
                    if operation ~= GETTABLE or floor(other / 8388608) ~= target then
                        if operation == SELF or operation == GETGLOBAL or operation == CALL then
                            out[place] = char(byte(code, place) - 1)
                        end
                        break
                    end
                end
            end
        end
    end
    at = first + 4 * count
    count = number(code, at, int)
    at = at + int
    for _ = 1, count do
        local kind = byte(code, at)
        at = at + 1
        if kind == 1 then at = at + 1 elseif kind == 3 then at = at + double
        elseif kind == 4 then at = skip_string(at) end
    end
    count = number(code, at, int)
    at = at + int
    for _ = 1, count do at = change(code, at, int, size, double, out) end
    at = at + int + int * number(code, at, int)
    count = number(code, at, int)
    at = at + int
    for _ = 1, count do at = skip_string(at) + 2 * int end
    count = number(code, at, int)
    at = at + int
    for _ = 1, count do at = skip_string(at) end
    return at
end

-- Names of the functions and libraries that are in Lua here.
local NAMES = {
    'cjson', 'cmsgpack', 'bit', 'struct', 'unpack', 'find', 'match', 'gsub', 'next', 'pairs', 'metatable', 'xpcall',
    'raw', 'load', 'insert', 'remove', 'sort', 'random', 'coroutine', 'collectgarbage', 'env',
}

local function concerns(text)
    if not find(text, 'return', 1, true) then return false end
    for _, name in G.ipairs(NAMES) do
        if find(text, name, 1, true) then return true end
    end
    return find(text, '[^.]pcall') ~= nil
end

-- Return the chunk with ordinary calls, if its source contains one of these names, or calls a field and `fields` is set
-- (redis.call is a function in Lua then); else the chunk.
return function(chunk, text, fields)
    if not (concerns(text) or fields and find(text, 'return%s*[%w_]+%s*[%.:]')) then return chunk end
    local code = dump(chunk)
    -- Little-endian, instructions of 4 bytes: the machines that rillet runs on.
    if sub(code, 1, #HEADER) ~= HEADER or byte(code, 10) ~= 4 then return chunk end
    local out, places = {}, {}
    change(code, 13, byte(code, 8), byte(code, 9), byte(code, 11), out)
    for place in G.pairs(out) do places[#places + 1] = place end
    if #places == 0 then return chunk end
    G.table.sort(places)
    local pieces, last = {}, 1
    for _, place in G.ipairs(places) do
        pieces[#pieces + 1] = sub(code, last, place - 1)
        pieces[#pieces + 1] = out[place]
        last = place + 1
    end
    pieces[#pieces + 1] = sub(code, last)
    return loadstring(concat(pieces)) or chunk
end
"""
