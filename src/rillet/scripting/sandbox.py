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
local getinfo, sethook, raw_metatable = debug.getinfo, debug.sethook, debug.getmetatable
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

-- The checks of arguments, and the functions that are written in C in Redis.
local checks = options.checks
local raise, bad_argument, bad_type, in_c = checks.raise, checks.bad_argument, checks.bad_type, checks.public
local to_string, to_integer, cast_int32 = checks.to_string, checks.to_integer, checks.cast_int32

-- 1. Errors -------------------------------------------------------------------------------------------

local SOURCE = "=[rillet]"

local null  -- cjson.null, the only userdata of scripts

local function is_exception(err)
  return type(err) == "userdata" and err ~= null
end

-- Return the plain value of an error; a value of lupa if the exception must leave the script.
local function plain(err)
  if is_exception(err) then
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
    if is_exception(err) then error(err, 0) end
  elseif type(err) == "table" then
    local text = err.err
    if type(text) == "string" or type(text) == "number" then return false, text end
    return false, err, text
  end
  if type(err) == "table" then err = err.err end
  return false, err
end

-- As `converted`, but without the conversion of error tables that only Redis's own pcall does.
local function passed(ok, ...)
  if ok then return true, ... end
  local err = plain((...))
  if is_exception(err) then error(err, 0) end
  return false, err
end

local function pcall(...)
  if select("#", ...) == 0 then return false, "attempt to call a boolean value" end
  return converted(raw_pcall(...))
end

local wrapped, guarded

-- The frame that raised the error which the caller, an error handler, received, and whether functions of this file were
-- above it: they count as C.
local function origin()
  local level = 3
  local frame = getinfo(level, "nSl")
  if frame and frame.what == "C" then
    level = level + 1
    frame = getinfo(level, "nSl")
  end
  local through = false
  while frame and frame.source == SOURCE do
    -- `wrapped` and `guarded` were called as tail calls.
    local f = getinfo(level, "f").func
    level = level + ((f == wrapped or f == guarded) and 2 or 1)
    frame = getinfo(level, "nSl")
    through = true
  end
  return frame, through
end

-- The plain value of an error that a function of this file raised, with the position of its call.
local function located(err, frame, through)
  if type(err) ~= "string" or sub(err, 1, 9) ~= "[rillet]:" then return plain(err) end
  err = plain(err)
  if through and frame and frame.currentline > 0 then
    err = frame.short_src .. ":" .. frame.currentline .. ": " .. err
  end
  return err
end

local function without_handler(ok, ...)
  if ok then return true, ... end
  local err = plain((...))
  if is_exception(err) then error(err, 0) end
  return false, "error in error handling"
end

local function xpcall(f, handler)
  if type(handler) ~= "function" then return without_handler(raw_pcall(f)) end
  return passed(raw_xpcall(f, function(err)
    err = located(err, origin())
    if is_exception(err) then return err end
    return handler(err)
  end))
end

-- The handler of a script's own errors (Redis: __redis__err__handler).
local function handler(err)
  local frame, through = origin()
  err = located(err, frame, through)
  if is_exception(err) then return err end
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

-- Each wrapper checks its arguments first, in the order of Lua's own function: an error of that function would have the
-- position of the wrapper.
local function check_table(count, t)
  if type(t) ~= "table" then bad_type(1, "table", t, count) end
end

function library.rawset(...)
  local count = select("#", ...)
  check_table(count, ...)
  if count < 3 then bad_argument(count + 1, "value expected") end
  if real_of[(...)] then error("Attempt to modify a readonly table", 0) end
  return rawset(...)
end

function library.rawget(...)
  local count = select("#", ...)
  check_table(count, ...)
  if count < 2 then bad_argument(2, "value expected") end
  local real = real_of[(...)]
  if real then return rawget(real, select(2, ...)) end
  return rawget(...)
end

function library.next(...)
  local t = ...
  if type(t) ~= "table" then check_table(select("#", ...), t) end
  local real = real_of[t]
  if real then return next(real, select(2, ...)) end
  return next(...)
end

function library.pairs(...)
  check_table(select("#", ...), ...)
  if real_of[(...)] then return library.next, (...), nil end
  return pairs(...)
end

local metatable_of_globals = protect({__index = missing})
local metatable_of_strings
local globals_proxy = {}

function library.getmetatable(...)
  if select("#", ...) == 0 then bad_argument(1, "value expected") end
  local value = ...
  if type(value) == "string" then return metatable_of_strings end
  if real_of[value] then return globals_proxy[value] and metatable_of_globals or nil end
  return getmetatable(...)
end

function library.setmetatable(...)
  local t, new = ...
  if type(t) ~= "table" or type(new) ~= "table" then
    local count = select("#", ...)
    check_table(count, t)
    if count < 2 or new ~= nil then bad_argument(2, "nil or table expected") end
  end
  local old = raw_metatable(t)
  if old and rawget(old, "__metatable") ~= nil and not real_of[t] then raise("cannot change a protected metatable") end
  if real_of[(...)] then error("Attempt to modify a readonly table", 0) end
  return setmetatable(...)
end

function library.xpcall(...)
  if select("#", ...) < 2 then bad_argument(2, "value expected") end
  return xpcall(...)
end

library.pcall = pcall
library.tostring, library.assert, library.tonumber, library.rawequal = tostring, assert, tonumber, rawequal
library.type, library.select, library.error = type, select, error

-- luaL_checkint
local function as_int(number, value, count)
  return cast_int32(to_integer(number, value, count))
end

-- Lua 5.1 computes the number of results as an int, which overflows: unpack(t, 0, 2147483647) would end the process.
function library.unpack(...)
  local t, first, last = ...
  if first == nil and last == nil and type(t) == "table" and #t < MOST_RESULTS / 2 then return unpack(...) end
  local count = select("#", ...)
  check_table(count, t)
  local from, to = 1, nil
  if first ~= nil then from = as_int(2, first, count) end
  if last ~= nil then to = as_int(3, last, count) else to = #t end
  if from <= to and to - from + 1 + count > MOST_RESULTS then raise("too many results to unpack") end
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
  local function loadstring(...)
    local count, text, name = select("#", ...), ...
    text = to_string(1, text, count)
    name = name == nil and text or to_string(2, name, count)
    -- Bytecode is read as a source.
    local is_bytecode = byte(text, 1) == 27
    local chunk, message = raw_loadstring(is_bytecode and "\1" .. sub(text, 2) or text, name)
    if is_bytecode then message = gsub(message, "char%(1%)", "char(27)", 1) end
    if not chunk then return nil, message end
    raw_setfenv(chunk, globals)
    return chunk
  end
  local function load(...)
    local count, reader, name = select("#", ...), ...
    name = name == nil and "=(load)" or to_string(2, name, count)
    if type(reader) ~= "function" then bad_type(1, "function", reader, count) end
    local pieces, count = {}, 0
    local ok, message = passed(raw_pcall(function()
      while true do
        local piece = reader()
        if piece == nil or piece == "" then return end
        if type(piece) ~= "string" and type(piece) ~= "number" then raise("reader function must return a string") end
        count = count + 1
        pieces[count] = piece
      end
    end))
    if not ok then return nil, message end
    return loadstring(concat(pieces), name)
  end
  in_c[loadstring], in_c[load] = true, true
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

local function check_strings(count, text, pattern)
  to_string(1, text, count)
  if #to_string(2, pattern, count) > LONGEST then raise("pattern too complex") end
end

-- Return results of Lua's own function; or raise its error with the position of the call.
guarded = function(ok, ...)
  if ok then return ... end
  local err, frame = (...), getinfo(3, "Sl")
  if type(err) == "string" and err ~= "not enough memory" and frame and frame.currentline > 0 then
    err = frame.short_src .. ":" .. frame.currentline .. ": " .. err
  end
  error(err, 0)
end

local strings = copy(string_library)
do
  local find, match, gmatch, gsub = strings.find, strings.match, strings.gmatch, strings.gsub
  local function check_search(...)
    local count, text, pattern, init = select("#", ...), ...
    check_strings(count, text, pattern)
    if init ~= nil then to_integer(3, init, count) end
  end
  local function is_search(text, pattern, init)
    return init == nil and type(text) == "string" and type(pattern) == "string" and #pattern <= LONGEST
  end
  function strings.find(...)
    if not is_search(...) then check_search(...) end
    return guarded(raw_pcall(find, ...))
  end
  function strings.match(...)
    if not is_search(...) then check_search(...) end
    return guarded(raw_pcall(match, ...))
  end
  function strings.gmatch(...)
    check_strings(select("#", ...), ...)
    return gmatch(...)
  end
  function strings.gsub(...)
    local count, text, pattern, new, most = select("#", ...), ...
    check_strings(count, text, pattern)
    if most ~= nil then to_integer(4, most, count) end
    local kind = type(new)
    if kind ~= "function" then
      if kind ~= "string" and kind ~= "number" and kind ~= "table" then
        bad_argument(3, "string/function/table expected")
      end
      return guarded(raw_pcall(gsub, ...))
    end
    -- An error of the function keeps its own position, so only the pattern is guarded.
    local ok, message = raw_pcall(match, text, pattern)
    if not ok then raise(message) end
    return gsub(...)
  end
  strings.gfind = strings.gmatch
end

local function check_writable(t, elements)
  if real_of[t] and #real_of[t] >= elements then error("Attempt to modify a readonly table", 0) end
end

local tables = copy(table_library)
do
  local insert, remove, sort = tables.insert, tables.remove, tables.sort
  function tables.insert(...)
    local count, t, position = select("#", ...), ...
    if type(t) ~= "table" then check_table(count, t) end
    if count == 3 then
      to_integer(2, position, count)
    elseif count ~= 2 then
      raise("wrong number of arguments to 'insert'")
    end
    if real_of[t] then check_writable(t, 0) end
    return insert(...)
  end
  -- A table without elements stays as it is, so there is nothing to refuse.
  function tables.remove(...)
    local count, t, position = select("#", ...), ...
    check_table(count, t)
    if position ~= nil then to_integer(2, position, count) end
    check_writable(t, 1)
    return remove(...)
  end
  function tables.sort(...)
    local count, t, compare = select("#", ...), ...
    check_table(count, t)
    if compare ~= nil and type(compare) ~= "function" then bad_type(2, "function", compare, count) end
    check_writable(t, 2)
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

function maths.random(...)
  local count = select("#", ...)
  local r = random_number()
  if count == 0 then return r end
  local low, high = 1, nil
  if count == 1 then
    high = as_int(1, (...), 1)
    if high < 1 then bad_argument(1, "interval is empty") end
    return floor(r * high) + 1
  elseif count == 2 then
    low, high = as_int(1, (...), 2), as_int(2, (select(2, ...)), 2)
    if low > high then bad_argument(2, "interval is empty") end
    return floor(r * (high - low + 1)) + low
  end
  raise("wrong number of arguments")
end

function maths.randomseed(...)
  local seed = as_int(1, (...), select("#", ...))
  x0, x1, x2 = 0x330E, seed % 65536, floor(seed / 65536) % 65536
end

local coroutines = copy(coroutine_library)
local hook

local function new_thread(f)
  if type(f) ~= "function" or in_c[f] or getinfo(f, "S").what == "C" then bad_argument(1, "Lua function expected") end
  local thread = coroutine_library.create(f)
  sethook(thread, hook, "", options.hook_period)
  return thread
end

function coroutines.create(f)
  local thread = new_thread(f)
  return thread
end

-- The thread stays referenced until its error is converted: lupa may hold values of it.
local function passed_of(_, ok, ...)
  if ok then return true, ... end
  return passed(false, ...)
end

local function resume(...)
  return passed_of((...), coroutine_library.resume(...))
end

function coroutines.resume(...)
  if type((...)) ~= "thread" then bad_argument(1, "coroutine expected") end
  return resume(...)
end

wrapped = function(ok, ...)
  if ok then return ... end
  local err = ...
  if type(err) == "string" or type(err) == "number" then error(tostring(err), 3) end
  error(err, 0)
end

function coroutines.wrap(f)
  local thread = new_thread(f)
  local function resume_thread(...)
    return wrapped(resume(thread, ...))
  end
  in_c[resume_thread] = true
  return resume_thread
end

for _, functions_of in raw_ipairs({library, strings, tables, maths, coroutines}) do checks.publish(functions_of) end

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
checks.publish(api_values)
in_c[wide_call], in_c[wide_pcall] = true, true

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
  if name == "cjson" then null = table.null end
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
