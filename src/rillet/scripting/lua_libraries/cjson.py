"""`cjson`: JSON for scripts, with the results and the limits of Redis's lua_cjson.c.

Properties that scripts depend on:

- A table is an array if all its keys are positive integers; the empty table is an object, `{}`. An array with large
  gaps is an error (`encode_sparse_array` sets the limits: the largest index against the number of elements).
- Numbers have 14 significant digits (`encode_number_precision`); NaN and infinities are errors, unless
  `encode_invalid_numbers` allows them. The decoder accepts the numbers of C's `strtod`, also `0x1p4` and `nan`,
  unless `decode_invalid_numbers` forbids the forms that JSON does not have.
- Strings are bytes. Encoding escapes control bytes, `"`, `\\`, `/` and DEL, and copies everything else, valid UTF-8 or
  not. Decoding turns `\\uXXXX` into UTF-8 and joins surrogate pairs.
- JSON's null is `cjson.null`, one userdata. Lua cannot make a C null pointer, so the value is a proxy that prints as
  the null pointer does.
- Values may be nested 1000 deep (`encode_max_depth`, `decode_max_depth`).
- The keys of an object appear in the order of the table. It is the order of Redis: the decoder inserts the keys in the
  same order into a table that grows in the same way. Only the hash of a key of 32 bytes or more differs (Redis hashes
  all its bytes, Lua samples them); Valkey 9 hashes all strings in another way.
- With `decode_array_with_array_mt(true)` (Redis 8.6) a decoded array has a metatable that makes the encoder write `[]`
  for it when it is empty. Redis creates one read-only metatable for each array; here all arrays share one, because a
  script cannot change it.

A call has its own buffer: a finalizer may run at any allocation and may itself call the library.
`encode_keep_buffer` therefore only stores its setting.

Cost: encoding and decoding are linear. Encoding appends pieces to a table and joins them once. The decoder searches for
the ends of strings and numbers with `string.find`, which runs in C, instead of stepping over bytes.

Sources: lua_cjson.c and fpconv.c of Redis 7.0.15, 8.6.3 and Valkey 9.1.2.
"""

from __future__ import annotations

SOURCE = rb"""
local G, support, null, with_array_metatables, protect = ...
local byte, char, find, format = G.string.byte, G.string.char, G.string.find, G.string.format
local gsub, lower, match, sub = G.string.gsub, G.string.lower, G.string.match, G.string.sub
local concat, floor, huge = G.table.concat, G.math.floor, G.math.huge
local getmetatable = G.debug.getmetatable
local next, rawget, select, setmetatable, tonumber, tostring, type =
    G.next, G.rawget, G.select, G.setmetatable, G.tonumber, G.tostring, G.type
local raise, bad_argument = support.raise, support.bad_argument
local to_string, to_integer = support.to_string, support.to_integer
local cast_int32, publish, MAX_STACK = support.cast_int32, support.publish, support.max_stack
local INT_MAX, INT_MIN = 2147483647, -2147483648

-- What the encoder writes for a byte: json_append_string.
local ESCAPED = {}
for code = 0, 31 do ESCAPED[char(code)] = format('\\u%04x', code) end
ESCAPED['\b'], ESCAPED['\t'], ESCAPED['\n'], ESCAPED['\f'], ESCAPED['\r'] = '\\b', '\\t', '\\n', '\\f', '\\r'
ESCAPED['"'], ESCAPED['\\'], ESCAPED['/'], ESCAPED['\127'] = '\\"', '\\\\', '\\/', '\\u007f'
local TO_ESCAPE = '[%z\1-\31"\\/\127]'

-- What the decoder reads after a backslash, by byte.
local UNESCAPED = {[34] = '"', [92] = '\\', [47] = '/', [98] = '\b', [116] = '\t', [110] = '\n', [102] = '\f',
    [114] = '\r'}

-- The tokens of one byte. The parser reports an unexpected token by these names.
local TOKENS = {[123] = 'T_OBJ_BEGIN', [125] = 'T_OBJ_END', [91] = 'T_ARR_BEGIN', [93] = 'T_ARR_END',
    [44] = 'T_COMMA', [58] = 'T_COLON', [0] = 'T_END'}
local SPACE = {[32] = true, [9] = true, [10] = true, [13] = true}

local array_metatable

-- Mark an array that the decoder makes, as lua_cjson.c of Redis 8.6 does.
local function mark(array)
    if array_metatable == nil then
        array_metatable = {__is_cjson_array = true}
        if protect ~= nil then array_metatable = protect.protect(array_metatable) end
    end
    setmetatable(array, array_metatable)
end

local function quoted(text)
    if find(text, TO_ESCAPE) then text = gsub(text, TO_ESCAPE, ESCAPED) end
    return '"' .. text .. '"'
end

-- codepoint_to_utf8
local function utf8(code)
    if code < 0x80 then return char(code) end
    if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then
        return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end
    return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
        0x80 + code % 64)
end

-- json_next_string_token. `at` is the opening quote. Returns the string and the position behind it, or nil, the error
-- and its position.
local function scan_string(text, at)
    local start = at + 1
    local stop = find(text, '["\\%z]', start)
    if stop ~= nil and byte(text, stop) == 34 then return sub(text, start, stop - 1), stop + 1 end
    local parts, count = {}, 0
    while true do
        if stop == nil then return nil, 'unexpected end of string', #text + 1 end
        local found = byte(text, stop)
        if found == 0 then return nil, 'unexpected end of string', stop end
        count = count + 1
        parts[count] = sub(text, start, stop - 1)
        if found == 34 then return concat(parts), stop + 1 end
        local escape = byte(text, stop + 1)
        if escape == 117 then
            local digits = match(text, '^%x%x%x%x', stop + 2)
            if digits == nil then return nil, 'invalid unicode escape code', stop end
            local code = tonumber(digits, 16)
            start = stop + 6
            if code >= 0xD800 and code < 0xE000 then
                digits = code < 0xDC00 and match(text, '^\\u(%x%x%x%x)', start)
                local low = digits and tonumber(digits, 16)
                if not low or low < 0xDC00 or low >= 0xE000 then
                    return nil, 'invalid unicode escape code', stop
                end
                code = (code - 0xD800) * 1024 + (low - 0xDC00) + 0x10000
                start = stop + 12
            end
            count = count + 1
            parts[count] = utf8(code)
        else
            local plain = escape and UNESCAPED[escape]
            if plain == nil then return nil, 'invalid escape code', stop end
            count = count + 1
            parts[count] = plain
            start = stop + 2
        end
        stop = find(text, '["\\%z]', start)
    end
end

-- The last byte of the number that strtod would read at `at`, or nil.
local function number_end(text, at)
    local first = byte(text, at)
    if first == 43 or first == 45 then at = at + 1 end
    local _, last
    if find(text, '^0[xX]%.?%x', at) then
        _, last = find(text, '^%x*%.?%x*', at + 2)
        local _, exponent = find(text, '^[pP][-+]?%d+', last + 1)
        return exponent or last
    end
    _, last = find(text, '^%d+%.?%d*', at)
    if last == nil then _, last = find(text, '^%.%d+', at) end
    if last ~= nil then
        local _, exponent = find(text, '^[eE][-+]?%d+', last + 1)
        return exponent or last
    end
    local word = lower(sub(text, at, at + 7))
    if word == 'infinity' then return at + 7 end
    word = sub(word, 1, 3)
    if word == 'inf' then return at + 2 end
    if word == 'nan' then
        _, last = find(text, '^%([%w_]*%)', at + 3)
        return last or at + 2
    end
    return nil
end

-- json_is_invalid_number: a form that strtod reads and JSON does not have.
local function is_invalid_number(text, at)
    local first = byte(text, at)
    if first == 43 then return true end
    if first == 45 then at = at + 1 end
    if find(text, '^0[xX%d]', at) then return true end
    local word = lower(sub(text, at, at + 2))
    return word == 'inf' or word == 'nan'
end

-- lua_array_length, without its error: the elements that the array form has, 0 or less for an object, nil if the array
-- is too sparse. An index beyond a C int counts as the smallest int, as on x86-64.
local function array_length(value, ratio, safe)
    local max, items = 0, 0
    for key in next, value do
        if type(key) ~= 'number' or key < 1 or floor(key) ~= key then return -1 end
        if key > max then max = key <= INT_MAX and key or INT_MIN end
        items = items + 1
    end
    if ratio > 0 and max > safe and max > cast_int32(items * ratio) then return nil end
    return max
end

local function new()
    local sparse_convert, sparse_ratio, sparse_safe = false, 2, 10
    local encode_max_depth, decode_max_depth = 1000, 1000
    local encode_invalid, decode_invalid = 0, true
    local precision, number_format = 14, '%.14g'
    local keep_buffer, array_metatables = true, false

    local function number_text(value)
        if value - value ~= 0 then
            if encode_invalid == 0 then raise('Cannot serialise number: must not be NaN or Inf') end
            if encode_invalid == 2 then return 'null' end
            if value ~= value then return 'nan' end
        end
        return format(number_format, value)
    end

    -- json_append_data: append the text of `value` to `out` behind its first `count` pieces; return the new count.
    -- `used` is the number of stack slots that the C function has in use.
    local function append(out, count, value, depth, used)
        local kind = type(value)
        if kind == 'string' then
            out[count + 1] = quoted(value)
            return count + 1
        elseif kind == 'number' then
            out[count + 1] = number_text(value)
            return count + 1
        elseif kind == 'boolean' then
            out[count + 1] = value and 'true' or 'false'
            return count + 1
        elseif value == nil or value == null then
            out[count + 1] = 'null'
            return count + 1
        elseif kind ~= 'table' then
            raise('Cannot serialise ' .. kind .. ': type not supported')
        end
        depth = depth + 1
        if depth > encode_max_depth or used + 3 > MAX_STACK then
            raise(format('Cannot serialise, excessive nesting (%d)', depth))
        end
        local length
        if with_array_metatables then
            local metatable = getmetatable(value)
            if metatable and metatable.__is_cjson_array then length = #value end
        end
        local as_array = length ~= nil
        if not as_array then
            length = array_length(value, sparse_ratio, sparse_safe)
            if length == nil then
                if not sparse_convert then raise('Cannot serialise table: excessively sparse array') end
                length = -1
            end
            as_array = length > 0
        end
        count = count + 1
        if as_array then
            out[count] = '['
            for index = 1, length do
                if index > 1 then
                    count = count + 1
                    out[count] = ','
                end
                count = append(out, count, rawget(value, index), depth, used + 1)
            end
            count = count + 1
            out[count] = ']'
            return count
        end
        out[count] = '{'
        local separated = true
        for key, element in next, value do
            if separated then
                separated = false
            else
                count = count + 1
                out[count] = ','
            end
            local key_kind = type(key)
            count = count + 1
            if key_kind == 'string' then
                out[count] = quoted(key) .. ':'
            elseif key_kind == 'number' then
                out[count] = '"' .. number_text(key) .. '":'
            else
                raise('Cannot serialise ' .. key_kind .. ': table key must be a number or string')
            end
            count = append(out, count, element, depth, used + 2)
        end
        count = count + 1
        out[count] = '}'
        return count
    end

    -- json_next_token: what the parser finds at `at`, as the name that an error shows, and the position of the error.
    local function token(text, at)
        at = find(text, '[^ \t\n\r]', at) or #text + 1
        local first = byte(text, at)
        if first == nil then return 'T_END', at end
        if TOKENS[first] then return TOKENS[first], at end
        if first == 34 then
            local value, problem, position = scan_string(text, at)
            if value == nil then return problem, position end
            return 'T_STRING', at
        end
        if first == 45 or (first >= 48 and first <= 57) then
            if not decode_invalid and is_invalid_number(text, at) then return 'invalid number', at end
            return number_end(text, at) and 'T_NUMBER' or 'invalid number', at
        end
        if find(text, '^true', at) or find(text, '^false', at) then return 'T_BOOLEAN', at end
        if find(text, '^null', at) then return 'T_NULL', at end
        if decode_invalid and find(text, '^[+iInN]', at) and is_invalid_number(text, at) then
            return number_end(text, at) and 'T_NUMBER' or 'invalid number', at
        end
        return 'invalid token', at
    end

    local function unexpected(text, at, expected)
        local found, position = token(text, at)
        raise(format('Expected %s but found %s at character %d', expected, found, position))
    end

    -- json_process_value and the two contexts: read the value at `at`; return it and the position behind it.
    local function read(text, at, depth, used)
        local first = byte(text, at)
        if SPACE[first] then
            at = find(text, '[^ \t\n\r]', at) or #text + 1
            first = byte(text, at)
        end
        if first == 34 then
            local value, behind = scan_string(text, at)
            if value == nil then unexpected(text, at, 'value') end
            return value, behind
        elseif first == 123 then
            depth = depth + 1
            if depth > decode_max_depth or used + 3 > MAX_STACK then
                raise(format('Found too many nested data structures (%d) at character %d', depth, at))
            end
            local object = {}
            at = at + 1
            first = byte(text, at)
            if SPACE[first] then
                at = find(text, '[^ \t\n\r]', at) or #text + 1
                first = byte(text, at)
            end
            if first == 125 then return object, at + 1 end
            while true do
                if first ~= 34 then unexpected(text, at, 'object key string') end
                local key, behind = scan_string(text, at)
                if key == nil then unexpected(text, at, 'object key string') end
                at = behind
                first = byte(text, at)
                if SPACE[first] then
                    at = find(text, '[^ \t\n\r]', at) or #text + 1
                    first = byte(text, at)
                end
                if first ~= 58 then unexpected(text, at, 'colon') end
                object[key], at = read(text, at + 1, depth, used + 2)
                first = byte(text, at)
                if SPACE[first] then
                    at = find(text, '[^ \t\n\r]', at) or #text + 1
                    first = byte(text, at)
                end
                if first == 125 then return object, at + 1 end
                if first ~= 44 then unexpected(text, at, 'comma or object end') end
                at = at + 1
                first = byte(text, at)
                if SPACE[first] then
                    at = find(text, '[^ \t\n\r]', at) or #text + 1
                    first = byte(text, at)
                end
            end
        elseif first == 91 then
            depth = depth + 1
            if depth > decode_max_depth or used + 2 > MAX_STACK then
                raise(format('Found too many nested data structures (%d) at character %d', depth, at))
            end
            local array = {}
            if array_metatables then
                if used + 3 > MAX_STACK then raise('max lua stack reached') end
                mark(array)
            end
            at = at + 1
            first = byte(text, at)
            if SPACE[first] then
                at = find(text, '[^ \t\n\r]', at) or #text + 1
                first = byte(text, at)
            end
            if first == 93 then return array, at + 1 end
            local index = 1
            while true do
                array[index], at = read(text, at, depth, used + 1)
                first = byte(text, at)
                if SPACE[first] then
                    at = find(text, '[^ \t\n\r]', at) or #text + 1
                    first = byte(text, at)
                end
                if first == 93 then return array, at + 1 end
                if first ~= 44 then unexpected(text, at, 'comma or array end') end
                at = at + 1
                index = index + 1
            end
        elseif first == nil then
            unexpected(text, at, 'value')
        elseif first == 45 or (first >= 48 and first <= 57) then
            if not decode_invalid and is_invalid_number(text, at) then unexpected(text, at, 'value') end
            local last = number_end(text, at)
            if last == nil then unexpected(text, at, 'value') end
            return tonumber(sub(text, at, last)), last + 1
        elseif first == 116 and find(text, '^true', at) then
            return true, at + 4
        elseif first == 102 and find(text, '^false', at) then
            return false, at + 5
        elseif first == 110 and find(text, '^null', at) then
            return null, at + 4
        elseif token(text, at) == 'T_NUMBER' then
            local last = number_end(text, at)
            return tonumber(sub(text, at, last)), last + 1
        end
        unexpected(text, at, 'value')
    end

    -- json_arg_init
    local function at_most(limit, ...)
        if select('#', ...) > limit then bad_argument(limit + 1, 'found too many arguments') end
    end

    -- json_integer_option. The message names argument 1 for each argument.
    local function integer_option(number, value, setting, least, most)
        if value == nil then return setting end
        local chosen = cast_int32(to_integer(number, value, number))
        if chosen < least or chosen > most then
            bad_argument(1, format('expected integer between %d and %d', least, most))
        end
        return chosen
    end

    local function switch_option(value, setting)
        if value == nil then return setting end
        if type(value) == 'boolean' then return value end
        local text = match(to_string(1, value, 1), '^[^%z]*')
        if text == 'on' then return true end
        if text == 'off' then return false end
        bad_argument(1, "invalid option '" .. text .. "'")
    end

    -- The fields are set in the order of lua_cjson_new, so that `pairs` shows them in Redis's order.
    local module = {}
    module.encode = function(...)
        if select('#', ...) ~= 1 then bad_argument(1, 'expected 1 argument') end
        local out = {}
        append(out, 0, ..., 0, 1)
        out = concat(out)
        return out
    end
    module.decode = function(...)
        if select('#', ...) ~= 1 then bad_argument(1, 'expected 1 argument') end
        local text = to_string(1, ..., 1)
        if #text >= 2 and (byte(text, 1) == 0 or byte(text, 2) == 0) then
            raise('JSON parser does not support UTF-16 or UTF-32')
        end
        local value, behind = read(text, 1, 0, 1)
        if behind <= #text and token(text, behind) ~= 'T_END' then unexpected(text, behind, 'the end') end
        return value
    end
    module.encode_sparse_array = function(...)
        at_most(3, ...)
        local convert, ratio, safe = ...
        sparse_convert = switch_option(convert, sparse_convert)
        sparse_ratio = integer_option(2, ratio, sparse_ratio, 0, INT_MAX)
        sparse_safe = integer_option(3, safe, sparse_safe, 0, INT_MAX)
        return sparse_convert, sparse_ratio, sparse_safe
    end
    module.encode_max_depth = function(...)
        at_most(1, ...)
        encode_max_depth = integer_option(1, ..., encode_max_depth, 1, INT_MAX)
        return encode_max_depth
    end
    module.decode_max_depth = function(...)
        at_most(1, ...)
        decode_max_depth = integer_option(1, ..., decode_max_depth, 1, INT_MAX)
        return decode_max_depth
    end
    module.encode_number_precision = function(...)
        at_most(1, ...)
        precision = integer_option(1, ..., precision, 1, 14)
        number_format = '%.' .. precision .. 'g'
        return precision
    end
    module.encode_keep_buffer = function(...)
        at_most(1, ...)
        keep_buffer = switch_option(..., keep_buffer)
        return keep_buffer
    end
    module.encode_invalid_numbers = function(...)
        at_most(1, ...)
        local value = ...
        if type(value) == 'string' and match(value, '^[^%z]*') == 'null' then
            encode_invalid = 2
        elseif value ~= nil then
            encode_invalid = switch_option(value, false) and 1 or 0
        end
        if encode_invalid == 2 then return 'null' end
        return encode_invalid == 1
    end
    module.decode_invalid_numbers = function(...)
        at_most(1, ...)
        decode_invalid = switch_option(..., decode_invalid)
        return decode_invalid
    end
    if with_array_metatables then
        module.decode_array_with_array_mt = function(...)
            at_most(1, ...)
            array_metatables = switch_option(..., array_metatables)
            return array_metatables
        end
    end
    module.new = new
    module.null = null
    module._NAME = 'cjson'
    module._VERSION = '2.1.0'
    return publish(module)
end

return new()
"""
