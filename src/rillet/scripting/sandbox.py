"""The sandbox, in Lua: the names that a script can reach, and how its value becomes a reply.

Redis changes Lua itself: a table can be read-only. lupa contains an unchanged Lua 5.1, so here a script gets a proxy in
place of each protected table:

    script  ->  proxy (always empty)  --__index-->  the real table       redis.call, KEYS, string.rep
                                      --__newindex-> "Attempt to modify a readonly table"

Functions that bypass metatables (rawset, next, table.insert, setmetatable ...) are wrapped, so that they find the real
table or refuse to change it. No function that a script can reach returns a real table: `protect` is the only place that
knows both.

The globals of the Lua state, where Lua and lupa look names up, are an empty table. A script never gets it: each chunk
is compiled with the proxy of the script's globals as its environment, also by `load` and `loadstring`, which reject
bytecode.

`redis.call` is a C function, not a Lua function: `return redis.call(...)` is a tail call, and a tail call of a Lua
function would remove the script's line from the error message. lupa's `as_function` makes C functions of Python's;
those of lua_stack.py take their place if there are any.

An error of Python code arrives as a value of lupa. `pcall`, `xpcall` and coroutines convert it (`plain`) before the
script sees it. An exception that is not meant for the script is raised again, so a script cannot swallow
KeyboardInterrupt.

The parts of this source have no access to global names while a script runs: everything is a local variable, which a
script cannot replace.
"""

from __future__ import annotations

SANDBOX = rb"""
local python, functions, options = ...
local type, tostring, tonumber, select, unpack = type, tostring, tonumber, select, unpack
local error, rawget, rawset, rawequal, next, pairs, assert = error, rawget, rawset, rawequal, next, pairs, assert
local raw_pcall, raw_xpcall, setmetatable, getmetatable = pcall, xpcall, setmetatable, getmetatable
local raw_setfenv, raw_getfenv, raw_loadstring, raw_ipairs = setfenv, getfenv, loadstring, ipairs
local getinfo, sethook = debug.getinfo, debug.sethook
local concat, format, sub, match, gsub, byte = table.concat, string.format, string.sub, string.match, string.gsub,
  string.byte
local find = string.find
local floor = math.floor
local string_library, table_library, math_library, clock = string, table, math, os.clock
local coroutine_library, raw_collectgarbage, raw_gcinfo, VERSION = coroutine, collectgarbage, gcinfo, _VERSION
local raw_globals = raw_getfenv(0)
local string_metatable = getmetatable("")

-- Python functions as C functions. `python` itself is unreachable afterwards.
local as_function = python.as_function
local native = {}
for name, callable in next, functions do
  native[name] = as_function(callable)
end
for name, callable in next, options.natives_in_c do native[name] = callable end
local take, interrupt, double_text, count_error = native.taken, native.interrupt, native.double, native.count_error

-- 1. Errors -------------------------------------------------------------------------------------------

local SOURCE = "=[rillet]"

-- Return the plain value of an error; a value of lupa if the exception must leave the script.
local function plain(err)
  if type(err) == "userdata" then
    local message, kind = take(err)
    if kind == nil then return err end
    if kind == 1 then return {err = message, ignore_error_stats_update = true} end
    if kind == 2 then return {err = message} end
    return message
  end
  if type(err) == "string" and sub(err, 1, 9) == "[rillet]:" then
    return (gsub(err, "^%[rillet%]:%d+: ", ""))
  end
  return err
end

local function converted(ok, ...)
  if ok then return true, ... end
  local err = ...
  if type(err) == "userdata" or type(err) == "string" then
    err = plain(err)
    if type(err) == "userdata" then error(err, 0) end
  elseif type(err) == "table" then
    local text = err.err
    if type(text) == "string" or type(text) == "number" then err = text end
    return false, err
  end
  if type(err) == "table" then err = err.err end
  return false, err
end

-- As `converted`, but without the conversion of error tables that only Redis's own pcall does.
local function passed(ok, ...)
  if ok then return true, ... end
  local err = plain((...))
  if type(err) == "userdata" then error(err, 0) end
  return false, err
end

local function pcall(...)
  if select("#", ...) == 0 then return false, "attempt to call a boolean value" end
  return converted(raw_pcall(...))
end

local function xpcall(f, handler)
  return passed(raw_xpcall(f, function(err)
    err = plain(err)
    if type(err) == "userdata" then return err end
    return handler(err)
  end))
end

local wrapped

-- The frame that raised the error which the caller, an error handler, received: functions of this file count as C.
local function origin()
  local level = 3
  local frame = getinfo(level, "nSl")
  if frame and frame.what == "C" then
    level = level + 1
    frame = getinfo(level, "nSl")
  end
  while frame and frame.source == SOURCE do
    -- coroutine.wrap's function calls `wrapped` as a tail call.
    level = level + (getinfo(level, "f").func == wrapped and 2 or 1)
    frame = getinfo(level, "nSl")
  end
  return frame
end

-- The handler of a script's own errors (Redis: __redis__err__handler).
local function handler(err)
  local frame = origin()
  if type(err) == "string" and sub(err, 1, 9) == "[rillet]:" then
    err = plain(err)
    if frame and frame.currentline > 0 then err = frame.short_src .. ":" .. frame.currentline .. ": " .. err end
  elseif type(err) == "userdata" then
    err = plain(err)
    if type(err) == "userdata" then return err end
  end
  if type(err) ~= "table" then err = {err = "ERR " .. tostring(err)} end
  if frame then
    err.source = frame.source
    err.line = frame.currentline
  end
  return err
end

-- Return "script:line: " for the caller of the C function that Python code runs for (luaL_where).
local function where()
  local frame = getinfo(4, "Sl")
  while frame and frame.source == SOURCE do frame = nil end
  if frame and frame.currentline > 0 then return frame.short_src .. ":" .. frame.currentline .. ": " end
  return ""
end

-- 2. Protected tables ---------------------------------------------------------------------------------

local real_of = {}

local function refuse()
  error("Attempt to modify a readonly table", 2)
end

local function protect(real)
  local proxy = {}
  real_of[proxy] = real
  setmetatable(proxy, {__index = real, __newindex = refuse})
  return proxy
end

local function missing(_, name)
  if type(name) ~= "string" and type(name) ~= "number" then
    error("Second argument to luaProtectedTableError must be a string or number", 2)
  end
  error("Script attempted to access nonexistent global variable '" .. gsub(name, "%z.*", "") .. "'", 2)
end

local library = {}
local MOST_RESULTS = 8000  -- LUAI_MAXCSTACK

-- The wrappers pass their arguments on as they came, so that Lua's own messages about them are right.
function library.rawset(...)
  if real_of[(...)] and select("#", ...) > 2 then error("Attempt to modify a readonly table", 0) end
  return rawset(...)
end

function library.rawget(...)
  local real = real_of[(...)]
  if real then return rawget(real, select(2, ...)) end
  return rawget(...)
end

function library.next(...)
  local real = real_of[(...)]
  if real then return next(real, select(2, ...)) end
  return next(...)
end

function library.pairs(...)
  if real_of[(...)] then return library.next, (...), nil end
  return pairs(...)
end

local metatable_of_globals = protect({__index = missing})
local metatable_of_strings
local globals_proxy = {}

function library.getmetatable(...)
  local value = ...
  if type(value) == "string" then return metatable_of_strings end
  if real_of[value] then return globals_proxy[value] and metatable_of_globals or nil end
  return getmetatable(...)
end

function library.setmetatable(...)
  if real_of[(...)] then error("Attempt to modify a readonly table", 0) end
  return setmetatable(...)
end

function library.xpcall(f, handle, ...)
  return xpcall(f, handle)
end

library.pcall = pcall
library.tostring, library.assert, library.tonumber, library.rawequal = tostring, assert, tonumber, rawequal
library.type, library.select, library.error = type, select, error

-- As C converts a number to an int; nil if it is none, or so large that the result has no meaning.
local function as_int(value)
  local number = tonumber(value)
  if not number or number ~= number or number >= 2 ^ 53 or number <= -2 ^ 53 then return nil end
  number = number < 0 and -floor(-number) or floor(number)
  return (number + 2147483648) % 4294967296 - 2147483648
end

-- Lua 5.1 computes the number of results as an int, which overflows: unpack(t, 0, 2147483647) would end the process.
function library.unpack(...)
  local _, first, last = ...
  if first ~= nil or last ~= nil then
    local from, to = as_int(first == nil and 1 or first), as_int(last == nil and 0 or last)
    if from == nil and tonumber(first) or to == nil and tonumber(last)
        or from and to and last ~= nil and to - from >= MOST_RESULTS
        or from and last == nil and from <= -MOST_RESULTS then
      error("too many results to unpack", 2)
    end
  end
  return unpack(...)
end

library.ipairs, library._VERSION, library.gcinfo = raw_ipairs, VERSION, raw_gcinfo

-- The collector serves all scripts: a script can run it, but not stop or tune it.
function library.collectgarbage(option, ...)
  if option == "stop" or option == "restart" or option == "setpause" or option == "setstepmul" then return 0 end
  local collectgarbage = raw_collectgarbage  -- errors name the variable that was called
  return collectgarbage(option, ...)
end

-- 3. Chunks -------------------------------------------------------------------------------------------

-- Return loadstring and load for scripts with these globals.
local function loaders(globals)
  local function loadstring(text, ...)
    if type(text) == "number" then text = tostring(text) end
    if type(text) == "string" and byte(text, 1) == 27 then
      return nil, (... or text) .. ": bytecode is not allowed"
    end
    local chunk, message = raw_loadstring(text, ...)
    if chunk then raw_setfenv(chunk, globals) end
    return chunk, message
  end
  local function load(reader, name)
    if type(reader) ~= "function" then
      error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ")", 2)
    end
    local pieces, count = {}, 0
    local ok, message = passed(raw_pcall(function()
      while true do
        local piece = reader()
        if piece == nil or piece == "" then return end
        if type(piece) ~= "string" then error("reader function must return a string", 0) end
        count = count + 1
        pieces[count] = piece
      end
    end))
    if not ok then return nil, message end
    return loadstring(concat(pieces), name or "=(load)")
  end
  return loadstring, load
end

-- Return getfenv and setfenv for scripts with these globals: the globals of the Lua state stay hidden.
local function environments(globals)
  local setfenv = raw_setfenv  -- under this name in Lua's messages
  local function get_environment(f)
    if f == 0 then return globals end
    if f == nil then f = 1 end
    local ok, found
    if type(f) == "number" then
      ok, found = raw_pcall(raw_getfenv, f > 0 and f + 2 or f)
      if not ok then
        -- `return getfenv(1)` is a tail call, after which the script's frame is gone.
        if f == 1 then return globals end
        error((gsub(gsub(found, "at level %d+$", "at level " .. f), "'%?'", "'getfenv'")), 2)
      end
    else
      found = raw_getfenv(f)
    end
    return found == raw_globals and globals or found
  end
  local function set_environment(f, t)
    local level = tonumber(f)
    if level then
      level = level < 0 and -floor(-level) or floor(level)
      if level < 0 then error("bad argument #1 to 'setfenv' (level must be non-negative)", 2) end
      local known, found = raw_pcall(raw_getfenv, level + 2)
      if level == 0 or known and found == raw_globals then
        error("'setfenv' cannot change environment of given object", 2)
      end
      return setfenv(level + 1, t)
    end
    if type(f) == "function" and raw_getfenv(f) == raw_globals then
      error("'setfenv' cannot change environment of given object", 2)
    end
    return setfenv(f, t)
  end
  return get_environment, set_environment
end

-- 4. string, table, math, coroutine, os ---------------------------------------------------------------

local function copy(t)
  local new = {}
  for key, value in next, t do new[key] = value end
  return new
end

-- Lua matches a pattern recursively: a longer pattern could exhaust the C stack of the process.
local LONGEST = options.longest_pattern

local function check_pattern(_, pattern)
  if type(pattern) == "string" and #pattern > LONGEST then error("pattern too complex", 3) end
end

local strings = copy(string_library)
do
  local find, match, gmatch, gsub = strings.find, strings.match, strings.gmatch, strings.gsub
  function strings.find(...) check_pattern(...) return find(...) end
  function strings.match(...) check_pattern(...) return match(...) end
  function strings.gmatch(...) check_pattern(...) return gmatch(...) end
  function strings.gsub(...) check_pattern(...) return gsub(...) end
  strings.gfind = strings.gmatch
end

local function check_table(t)
  if real_of[t] then error("Attempt to modify a readonly table", 0) end
end

local tables = copy(table_library)
do
  local insert, remove, sort = tables.insert, tables.remove, tables.sort
  function tables.insert(...) check_table(...) return insert(...) end
  -- A table without elements stays as it is, so there is nothing to refuse.
  function tables.remove(...)
    if real_of[(...)] and #real_of[(...)] > 0 then check_table(...) end
    return remove(...)
  end
  function tables.sort(...)
    if real_of[(...)] and #real_of[(...)] > 1 then check_table(...) end
    return sort(...)
  end
end

-- Redis's own generator: the same sequence for the same seed on every machine (rand.c).
local maths = copy(math_library)
local x0, x1, x2 = 0x330E, 0xABCD, 0x1234

local function random_number()
  local low = 0xE66D * x0 + 0xB
  local carry = floor(low / 65536)
  local middle = 0xE66D * x1 + 0xDEEC * x0 + carry
  local high = 0xE66D * x2 + 0xDEEC * x1 + 0x5 * x0 + floor(middle / 65536)
  x0, x1, x2 = low % 65536, middle % 65536, high % 65536
  return (x2 * 32768 + floor(x1 / 2)) % 2147483648 % 2147483647 / 2147483647
end

local function integer(value, position, name)
  local number = tonumber(value)
  if not number then
    error("bad argument #" .. position .. " to '" .. name .. "' (number expected, got " ..
          (value == nil and "no value" or type(value)) .. ")", 3)
  end
  number = number < 0 and -floor(-number) or floor(number)
  return (number + 2147483648) % 4294967296 - 2147483648
end

function maths.random(...)
  local count = select("#", ...)
  local r = random_number()
  if count == 0 then return r end
  local low, high = 1, nil
  if count == 1 then
    high = integer((...), 1, "random")
    if high < 1 then error("bad argument #1 to 'random' (interval is empty)", 2) end
    return floor(r * high) + 1
  elseif count == 2 then
    low, high = integer((...), 1, "random"), integer((select(2, ...)), 2, "random")
    if low > high then error("bad argument #2 to 'random' (interval is empty)", 2) end
    return floor(r * (high - low + 1)) + low
  end
  error("wrong number of arguments", 2)
end

function maths.randomseed(seed)
  seed = integer(seed, 1, "randomseed")
  x0, x1, x2 = 0x330E, seed % 65536, floor(seed / 65536) % 65536
end

local coroutines = copy(coroutine_library)
local hook

function coroutines.create(f, ...)
  local thread = coroutine_library.create(f, ...)
  sethook(thread, hook, "", options.hook_period)
  return thread
end

-- The thread stays referenced until its error is converted: lupa may hold values of it.
local function passed_of(_, ok, ...)
  if ok then return true, ... end
  return passed(false, ...)
end

function coroutines.resume(...)
  return passed_of((...), coroutine_library.resume(...))
end

wrapped = function(ok, ...)
  if ok then return ... end
  local err = ...
  if type(err) == "string" then error(err, 3) end
  error(err, 0)
end

function coroutines.wrap(f, ...)
  local thread = coroutines.create(f, ...)
  return function(...)
    return wrapped(coroutines.resume(thread, ...))
  end
end

local shared = {
  string = protect(strings), table = protect(tables), math = protect(maths), coroutine = protect(coroutines),
}
string_metatable.__index = strings
metatable_of_strings = protect({__index = shared.string})
if options.os_clock then shared.os = protect({clock = clock}) end

-- 5. The time limit -----------------------------------------------------------------------------------

local killed = false

local replying = false

hook = function()
  -- When a script was ended, the lines of this file that follow must run.
  if killed and getinfo(2, "S").source == SOURCE then return end
  local message = interrupt()
  if message then
    -- From now on at every line, so that the script cannot catch the error and continue.
    killed = true
    sethook(hook, "l")
    -- The functions of this file are about to return to the script, or to end it.
    if replying or getinfo(2, "S").source ~= SOURCE then error({err = message}, 0) end
  end
end

sethook(hook, "", options.hook_period)

-- 6. The value of a script as a reply (script_lua.c: luaReplyToRedisReply) -------------------------------

local script_resp, client_resp = 2, 2
local LIMIT = 8000 - 4

local function cstring(text)
  return (gsub(text, "%z.*", ""))
end

local function line(text)
  return (gsub(text, "[\r\n]", " "))
end

local function error_line(text)
  text = cstring(text)
  text = gsub(text, "[\r\n]+$", "")
  return "-" .. line(text) .. "\r\n"
end

local put

local function put_table(out, n, value, used)
  local field = rawget(value, "err")
  if type(field) == "string" then
    if value.ignore_error_stats_update ~= true then count_error(field) end
    out[n] = error_line(field)
    return n + 1
  end
  field = rawget(value, "ok")
  if type(field) == "string" then
    out[n] = "+" .. line(cstring(field)) .. "\r\n"
    return n + 1
  end
  field = rawget(value, "double")
  if type(field) == "number" then
    local text = double_text(field)
    out[n] = client_resp == 2 and "$" .. #text .. "\r\n" .. text .. "\r\n" or "," .. text .. "\r\n"
    return n + 1
  end
  field = rawget(value, "big_number")
  if type(field) == "string" then
    field = line(field)
    out[n] = client_resp == 2 and "$" .. #field .. "\r\n" .. field .. "\r\n" or "(" .. field .. "\r\n"
    return n + 1
  end
  field = rawget(value, "verbatim_string")
  if type(field) == "table" then
    local kind, text = rawget(field, "format"), rawget(field, "string")
    if type(kind) == "string" and type(text) == "string" then
      kind = sub(cstring(kind) .. "   ", 1, 3)
      out[n] = client_resp == 2 and "$" .. #text .. "\r\n" .. text .. "\r\n" or
        "=" .. #text + 4 .. "\r\n" .. kind .. ":" .. text .. "\r\n"
      return n + 1
    end
  end
  local at, count = n, 0
  field = rawget(value, "map")
  if type(field) == "table" then
    n = n + 1
    for key, one in next, field do
      n = put(out, n, key, used + 4)
      n = put(out, n, one, used + 3)
      count = count + 1
    end
    out[at] = client_resp == 2 and "*" .. 2 * count .. "\r\n" or "%" .. count .. "\r\n"
    return n
  end
  field = rawget(value, "set")
  if type(field) == "table" then
    n = n + 1
    for key in next, field do
      n = put(out, n, key, used + 3)
      count = count + 1
    end
    out[at] = (client_resp == 2 and "*" or "~") .. count .. "\r\n"
    return n
  end
  n = n + 1
  while true do
    local one = rawget(value, count + 1)
    if one == nil then break end
    count = count + 1
    n = put(out, n, one, used + 1)
  end
  out[at] = "*" .. count .. "\r\n"
  return n
end

put = function(out, n, value, used)
  local kind = type(value)
  if used > LIMIT then
    count_error("ERR reached lua stack limit")
    out[n] = "-ERR reached lua stack limit\r\n"
  elseif kind == "string" then
    out[n] = "$" .. #value .. "\r\n" .. value .. "\r\n"
  elseif kind == "number" then
    out[n] = format(":%d\r\n", value)
  elseif kind == "boolean" then
    if script_resp == 2 then
      out[n] = value and ":1\r\n" or client_resp == 2 and "$-1\r\n" or "_\r\n"
    elseif client_resp == 2 then
      out[n] = value and ":1\r\n" or ":0\r\n"
    else
      out[n] = value and "#t\r\n" or "#f\r\n"
    end
  elseif kind == "table" then
    return put_table(out, n, value, used)
  else
    out[n] = client_resp == 2 and "$-1\r\n" or "_\r\n"
  end
  return n + 1
end

local function reply_of(value)
  local out = {}
  script_resp = native.resp()
  put(out, 1, value, 2)
  return concat(out)
end

-- 7. The API: the table `redis` -------------------------------------------------------------------------

-- script_lua.c: luaPushErrorBuff.
local function error_of(text)
  text = cstring(text)
  if sub(text, 1, 1) ~= "-" then text = "-" .. text end
  local code, message = match(text, "^%-([^ ]*) (.*)$")
  if not code then code, message = "ERR", sub(text, 2) end
  message = match(gsub(message, "^[\r\n]+", ""), "^(.-)[\r\n]*$")
  return {err = code .. " " .. message}
end

local function single_string(...)
  return select("#", ...) == 1 and type((...)) == "string"
end

local api_values = {}

-- lupa passes at most 7,997 arguments to a Python function, and `unpack` returns up to 7,999. The chunks whose source
-- contains `unpack` or `byte`, the functions with many results, run with functions in Lua in place of `redis.call` and
-- `redis.pcall`, which pass that many arguments in a table. Other chunks do not pay for a second function.
local MOST_ARGUMENTS = 7900
local wide_chunks = setmetatable({}, {__mode = "k"})
local tables_of_names, wide_now, wide_libraries = {}, nil, nil

local function wide(native_call, native_many)
  return function(...)
    local count = select("#", ...)
    local reply  -- no tail call: the position of the call would be lost
    if count > MOST_ARGUMENTS then reply = native_many({...}, count) else reply = native_call(...) end
    return reply
  end
end

local wide_call, wide_pcall = wide(native.call, native.call_many), wide(native.pcall, native.pcall_many)

local function widen(now)
  wide_now = now
  for _, values in raw_ipairs(tables_of_names) do
    rawset(values, "call", now and wide_call or native.call)
    rawset(values, "pcall", now and wide_pcall or native.pcall)
  end
end

local function is_wide_source(text)
  if next(options.natives_in_c) then return nil end  -- redis.call is in C, and takes any number of arguments
  return find(text, "unpack", 1, true) ~= nil or find(text, "byte", 1, true) ~= nil or nil
end

function api_values.error_reply(...)
  if not single_string(...) then return {err = "ERR wrong number or type of arguments"} end
  return error_of((...))
end

function api_values.status_reply(...)
  if not single_string(...) then return {err = "ERR wrong number or type of arguments"} end
  return {ok = (...)}
end

for _, name in raw_ipairs({"call", "pcall", "sha1hex", "log", "setresp", "set_repl", "acl_check_cmd"}) do
  api_values[name] = native[name]
end
for name, value in next, options.constants do api_values[name] = value end

-- 8. Environments, and the run of a script ----------------------------------------------------------------

-- Return the globals of a kind of script (the proxy and the real table), with more names for `redis`.
local function environment(more)
  local real = copy(library)
  for name, value in next, shared do real[name] = value end
  local values = copy(api_values)
  for name, value in next, more do values[name] = value end
  tables_of_names[#tables_of_names + 1] = values
  local api = protect(values)
  real.redis = api
  if options.api == "server" then real.server = api end
  local globals = protect(real)
  globals_proxy[globals] = true
  setmetatable(real, {__index = missing})
  real._G = globals
  real.loadstring, real.load = loaders(globals)
  if options.environments then real.getfenv, real.setfenv = environments(globals) end
  return globals, real
end

local globals, real = environment({replicate_commands = function() return true end})
if options.handler then
  real.__redis__err__handler = handler
  if options.api == "server" then real.__server__err__handler = handler end
end

-- Call a function of a script. Return its value if it is no table; else a reply and true, or an error and its source.
local function unhook()
  if killed then
    sethook(hook, "", options.hook_period)
    killed = false
  end
end

local function finish(ok, value)
  unhook()
  if ok then
    local kind = type(value)
    if kind == "table" then
      replying = true
      local done, reply = raw_pcall(reply_of, value)
      replying = false
      unhook()
      if done then return reply, true end
      value = handler(reply)
    elseif kind == "string" or kind == "number" then
      return value
    elseif kind == "boolean" then
      return reply_of(value), true
    else
      return nil
    end
  end
  if type(value) == "userdata" then error(value, 0) end
  if type(value) ~= "table" then
    return type(value) == "string" and value or "execution failure", false, false, false, false
  end
  local message, source, at = value.err, value.source, value.line
  return type(message) == "number" and tostring(message) or type(message) == "string" and message or false, true,
    source or false, at or false, value.ignore_error_stats_update == true
end

local function run(f, resp, key_count, ...)
  local count = select("#", ...)
  local keys, args
  if key_count == 0 then
    keys, args = {}, {...}
  elseif key_count == count then
    keys, args = {...}, {}
  else
    keys, args = {...}, {}
    for i = key_count + 1, count do
      args[i - key_count] = keys[i]
      keys[i] = nil
    end
  end
  client_resp = resp
  if wide_chunks[f] ~= wide_now then widen(wide_chunks[f]) end
  rawset(real, "KEYS", keys)
  rawset(real, "ARGV", args)
  return finish(raw_xpcall(f, handler))
end

-- As `run`, for more words than the stack of C holds: two tables.
local function run_tables(f, resp, keys, args)
  client_resp = resp
  if wide_chunks[f] ~= wide_now then widen(wide_chunks[f]) end
  rawset(real, "KEYS", keys)
  rawset(real, "ARGV", args)
  return finish(raw_xpcall(f, handler))
end

-- Call f(keys, args), for functions of libraries: without the globals KEYS and ARGV.
local function run_function(f, resp, keys, args)
  client_resp = resp
  if wide_libraries ~= wide_now then widen(wide_libraries) end
  return finish(raw_xpcall(function() return f(keys, args) end, handler))
end

-- Add a library for all environments that follow, and for the globals of scripts.
local function add_library(name, table)
  local proxy = protect(table)
  shared[name] = proxy
  rawset(real, name, proxy)
end

-- Compile with the environment of scripts; nil and the message if that fails.
local function compile(text, name, env)
  local chunk, message = raw_loadstring(text, name)
  if chunk then
    local wide_source = is_wide_source(text)
    chunk = options.keep_frames(chunk, text, wide_source)
    raw_setfenv(chunk, env or globals)
    wide_chunks[chunk] = wide_source
  end
  return chunk, message
end

-- 9. Libraries of functions (function_lua.c) --------------------------------------------------------------

-- The environment of the libraries. While a library loads, it shows `redis` with a few names; while a function runs,
-- all names of scripts except KEYS and ARGV.
local library_globals, library_names, running, loading

local function prepare_libraries()
  local values = {log = native.log, register_function = native.register}
  for name, value in next, options.constants do
    if not match(name, "^REPL_") then values[name] = value end
  end
  setmetatable(values, {__index = missing})
  local api = protect(values)
  local names = {redis = api, server = options.api == "server" and api or nil}
  setmetatable(names, {__index = missing})
  loading, running = protect(names), (environment({}))
  library_names = {__index = running}
  library_globals = protect(setmetatable({}, library_names))
  globals_proxy[library_globals] = true
end

-- Run the source of a library; nil, or 1 and the message of the compiler, or 2 and the message of the error.
local function load_library(source)
  if not library_globals then prepare_libraries() end
  local chunk, message = compile(source, "@user_function", library_globals)
  if not chunk then return 1, message end
  wide_libraries = wide_libraries or wide_chunks[chunk]
  library_names.__index = loading
  local ok, err = raw_pcall(chunk)
  library_names.__index = running
  if killed then
    sethook(hook, "", options.hook_period)
    killed = false
  end
  if ok then return nil end
  err = plain(err)
  if type(err) == "userdata" then error(err, 0) end
  if type(err) == "table" then return 2, rawget(err, "err") or "unknown error" end
  return 2, "ERR " .. tostring(err)
end

-- 10. For the C API ---------------------------------------------------------------------------------------

-- The functions of scripts that Python refers to, by number.
local held = setmetatable({}, {__mode = "v"})
local holding = 0

local function hold(f)
  repeat holding = holding % 1000000000 + 1 until held[holding] == nil
  held[holding] = f
  return holding
end

-- As `finish`, for a client with this protocol.
local function end_of_run(resp, ok, value)
  client_resp = resp
  return finish(ok, value)
end

-- Raise an exception of Python that left a script: it is in a global of the state for a moment.
local function rethrow()
  local raised = raw_globals.raised
  raw_globals.raised = nil
  error(raised, 0)
end

-- Nothing is left for a chunk that would run with the globals of the state.
for name in next, copy(raw_globals) do raw_globals[name] = nil end

return {
  run = run, run_tables = run_tables, run_function = run_function, compile = compile, add_library = add_library,
  load_library = load_library, environment = environment, where = where, protect = protect, as_function = as_function,
  pcall = pcall, plain = plain, hold = hold, held = held, rethrow = rethrow,
  handler = handler, end_of_run = end_of_run, globals = real,
}
"""
"""A chunk that gets lupa's `python`, the Python functions, and the options; it returns its own functions for Python."""
