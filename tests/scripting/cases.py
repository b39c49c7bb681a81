"""Scripts whose replies must equal those of the real servers: conversions, errors, the sandbox, the libraries."""

from __future__ import annotations

CONVERSIONS = r"""
return 1
return -1
return 3.99
return -3.99
return 1e300
return 0/0
return 1/0
return 2^53 + 1
return 'x'
return ''
return true
return false
return nil
return
return {}
return {1, 2, {3, 'x'}, nil, 4}
return {false, true, 'a', 1.5}
return {ok = 'fine'}
return {ok = 'fi\r\nne'}
return {err = 'BAD thing'}
return {err = 'BAD\r\nthing\r\n'}
return {err = 'one'}
return {err = ''}
return {err = 5}
return {ok = 5}
return {1, {err = 'INNER problem'}, 2}
return {double = 1.5}
return {double = 3}
return {double = 1e100}
return {double = -1/0}
return {double = 0.1}
return {double = 'x', 1, 2}
return {map = {a = 1}}
return {map = {}}
return {map = {[1] = {1, 2}}}
return {set = {a = true}}
return {set = {}}
return {big_number = '123456789012345678901234567890'}
return {big_number = '12\r\n34'}
return {verbatim_string = {format = 'txt', string = 'hello'}}
return {verbatim_string = {format = 'm', string = 'hello'}}
return {verbatim_string = {format = 'txt'}}
return function() end
return redis.call
return coroutine.create(function() end)
return {function() end, 2}
return setmetatable({}, {__index = function() return 5 end})
return {[1] = 'a', [3] = 'c'}
return {nil, 2}
return {'a\0b'}
return {ok = 'a\0b'}
return {err = 'A a\0b'}
local t = {} for i = 1, 50 do t = {t} end return t
redis.setresp(3) return true
redis.setresp(3) return false
redis.setresp(3) return nil
redis.setresp(3) return {true, false}
redis.setresp(3) return redis.call('get', 'missing')
redis.setresp(3) return type(redis.call('get', 'missing'))
redis.setresp(3) return redis.call('hgetall', 'h')
redis.setresp(3) return redis.call('smembers', 's1')
redis.setresp(3) return redis.call('zscore', 'z', 'a')
redis.setresp(3) return redis.call('zrange', 'z', 0, -1, 'withscores')
redis.setresp(3) return redis.call('set', 'k', 'v')
redis.setresp(3) return redis.call('hgetall', 'h').map.a
redis.setresp(3) return tostring(redis.call('zscore', 'z', 'a').double)
redis.setresp(3) return redis.call('smembers', 's1').set.one
redis.setresp(3) return redis.call('config', 'get', 'hz')
redis.setresp(3) return redis.call('client', 'getname')
redis.setresp(3) redis.setresp(2) return redis.call('hgetall', 'h')
redis.setresp(3) return redis.call('lrange', 'l', 0, -1)
redis.setresp(3) return redis.call('bzpopmin', 'zz', 1)
return redis.call('get', 'missing')
return type(redis.call('get', 'missing'))
return redis.call('hgetall', 'h')
return redis.call('smembers', 's1')
return redis.call('zscore', 'z', 'a')
return redis.call('zrange', 'z', 0, -1, 'withscores')
return redis.call('set', 'k', 'v').ok
return redis.call('set', 'k', 'v')
return redis.call('mget', 'k', 'missing')
return redis.call('lrange', 'l', 0, -1)
return redis.call('blpop', 'nothing', 0)
return redis.call('brpop', 'l', 0)
return redis.call('xread', 'block', 0, 'streams', 'nothing', '$')
return redis.call('incr', 'n')
return redis.call('incrby', 'n', 3)
return redis.call('incrby', 'n', 2^40)
return redis.call('ping')
return redis.call('echo', 'x')
return redis.call('echo', 1.5)
return redis.call('echo', 0.1)
return redis.call('echo', 1e15)
return redis.call('echo', 1e17)
return redis.call('echo', 1e20)
return redis.call('echo', 123456789012345678)
return redis.call('echo', 2^63)
return redis.call('echo', 1/3)
return redis.call('echo', 1/0)
return redis.call('echo', -1/0)
return redis.call('echo', 1e-10)
return redis.call('echo', 5e-324)
return redis.call('echo', -7)
return redis.call('object', 'encoding', 'k')
return redis.call('time')[1] + 0 > 1000
return redis.call('type', 'k')
return redis.call('exists', 'k')
return redis.call('del', 'gone')
return redis.call('lpop', 'gone')
return redis.call('xadd', 's', '5-5', 'a', 'b')
return redis.call('xrange', 's', '-', '+')
return redis.call('get', KEYS[1])
return {KEYS[1], ARGV[1], #KEYS, #ARGV}
return {KEYS, ARGV}
return KEYS[2]
ARGV[1] = 'changed' return ARGV
KEYS = {} return 1
return redis.call('select', 3)
redis.call('select', 3) redis.call('set', 'in3', 1) return redis.call('dbsize')
return redis.call('dbsize')
return redis.status_reply('hello')
return redis.status_reply('hello').ok
return redis.status_reply()
return redis.status_reply(1)
return redis.error_reply('MY error')
return redis.error_reply('-MY error')
return redis.error_reply('single')
return redis.error_reply('')
return redis.error_reply('MY err\r\n')
return redis.error_reply(1).err
return redis.error_reply('MY error').err
return redis.sha1hex('')
return redis.sha1hex('abc')
return redis.sha1hex(12)
return redis.sha1hex()
return redis.sha1hex('a', 'b')
return redis.sha1hex({})
return redis.log(redis.LOG_WARNING, 'a line')
return redis.log(5, 'x')
return redis.log('x', 'y')
return redis.log(1)
return redis.log()
return redis.setresp(2)
return redis.setresp(4)
redis.setresp(4)
redis.setresp()
redis.setresp('3') return redis.call('hgetall', 'h')
redis.setresp({})
return redis.set_repl(redis.REPL_ALL)
return redis.set_repl(8)
return redis.set_repl()
return redis.set_repl('x')
return redis.replicate_commands()
return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}
return {redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL}
return redis.acl_check_cmd('set', 'x', 'y')
return redis.acl_check_cmd('nothing')
return redis.acl_check_cmd()
return redis.acl_check_cmd('get')
return redis.acl_check_cmd({})
return redis.acl_check_cmd('xgroup', 'nothing')
"""

ERRORS = r"""
return redis.call('nothing')
return redis.pcall('nothing')
redis.call('nothing')
return redis.call('get')
return redis.pcall('get')
return redis.call('get', {})
return redis.pcall('get', {})
return redis.pcall('get', true)
return redis.call('get', nil)
return redis.call()
return redis.pcall()
return redis.call({})
return redis.call('lpush', 'k', 'x')
return redis.pcall('lpush', 'k', 'x')
return redis.pcall('lpush', 'k', 'x').err
local a, b = pcall(redis.call, 'lpush', 'k', 'x') return {a, b}
local a, b = pcall(function() redis.call('lpush', 'k', 'x') end) return {a, b}
local a, b = pcall(function() error('x') end) return {a, b}
local a, b = pcall(function() error('x', 0) end) return {a, b}
local a, b = pcall(function() error({err = 'MY x'}) end) return {a, b}
local a, b = pcall(function() error({err = 5}) end) return {a, type(b)}
local a, b = pcall(function() error({1, 2}) end) return {a, b}
local a, b = pcall(function() error() end) return {a, type(b)}
local a, b = pcall(function() error(true) end) return {a, b}
local a, b = pcall(function() return 1, 2, 3 end) return {a, b}
return {pcall(function() return 1, 2, 3 end)}
return {pcall(error, 'x')}
return {pcall(error)}
return {pcall(nil)}
return {pcall()}
return {xpcall(function() error('x') end, function(e) return 'got ' .. e end)}
return {xpcall(function() redis.call('nothing') end, function(e) return e.err end)}
return {xpcall(function() return 5 end, function(e) return e end)}
local a, b = xpcall(function() redis.call('lpush', 'k', 'x') end, function(e) return e end) return {a, b}
error('boom')
error('boom', 0)
error('boom', 2)
error({err = 'MY boom'})
error({err = 'MY boom', source = 'here', line = 7})
error()
error(nil)
error(5)
error(true)
error(function() end)
error(redis.error_reply('MY boom'))
local function f() error('deep') end f()
local function f() redis.call('nothing') end f()
local function f() error('level two', 2) end f()
return error('tail')
local function f() return redis.call('nothing') end return f()
local function f() return g() end return f()
x = 5
x.y = 5
return x
return x.y
local x = nil return x.y
local x = nil return x()
local x = 5 x.y = 1
return 1 + {}
return 'a' + 1
return 'a' .. {}
return #5
return {} < {}
return 1 < 'x'
for i = 1, 'x' do end
for i = 1, 10, 'y' do end
assert(false)
assert(false, 'message')
assert(nil)
assert(false, {err = 'MY message'})
return assert(1, 2)
tostring()
tonumber('zz', 50)
return tonumber('zz', 36)
string.rep()
return string.rep('x', 3)
return ('x'):rep(3)
('x'):rep({})
('x'):nothing()
string.format('%d', 'x')
return string.format('%5.2f|%s|%q', 1.234, 'a', 'b')
string.format('%y', 1)
return string.find('hello', 'l+')
string.find('hello', '[')
string.find('hello', '%')
string.find()
string.find('x')
string.find({}, 'x')
return string.gsub('hello', 'l', 'L')
string.gsub('hello', '(', 'x')
return string.match('key=value', '(%w+)=(%w+)')
return string.byte('a')
return string.char(65, 66)
string.char(256)
return string.len('abc')
return string.sub('hello', 2, -2)
return string.reverse('abc')
return table.concat({1, 2, 3}, ',')
table.concat({1, {}, 3}, ',')
table.insert({}, 1, 2, 3)
table.insert(nil, 1)
table.insert()
local t = {3, 1, 2} table.sort(t) return t
local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t
table.sort({1, 'x'})
table.sort({3, 1, 2}, function(a, b) return true end)
local t = {1, 2} table.insert(t, 1, 0) return t
local t = {1, 2, 3} table.remove(t, 1) return t
return table.remove({1, 2, 3})
return unpack({1, 2, 3})
return {unpack({1, 2, 3})}
return select('#', 1, nil, nil)
return {select(2, 'a', 'b', 'c')}
select(0)
return next({}) == nil
return next({5})
next({}, 'missing')
next()
pairs()
pairs(nil)
ipairs()
ipairs(nil)
local n = 0 for k, v in pairs({1, 2, a = 3}) do n = n + v end return n
local n = 0 for k, v in ipairs({1, 2, nil, 4}) do n = n + v end return n
return type(nil)
type()
return tostring(nil)
return tostring(1e15)
return tostring(1e14)
return tostring(0.1)
return tostring(2^53)
return tostring(true)
return tonumber('0x10')
return tonumber('  5  ')
return tonumber('5x')
return math.floor(3.7)
return math.max(1, 5, 3)
math.max()
return math.huge > 5
return math.random(100)
return math.random(5, 10)
return tostring(math.random())
math.randomseed(7) return {math.random(1000), math.random(1000), math.random(1000)}
math.randomseed(-7) return {math.random(1000), math.random(1000), tostring(math.random())}
math.randomseed(123456789) return {math.random(1000000), math.random(1000000)}
math.random(0)
math.random(5, 1)
math.random(1, 2, 3)
math.random('x')
math.randomseed()
return {coroutine.resume(coroutine.create(function(a) return coroutine.yield(a) end), 3)}
return {coroutine.resume(coroutine.create(function() error('inside') end))}
return {coroutine.resume(coroutine.create(function() error({err = 'MY inside'}) end))}
return coroutine.wrap(function() return 5 end)()
coroutine.wrap(function() error('wrapped') end)()
coroutine.wrap(function() error({err = 'MY wrapped'}) end)()
return coroutine.wrap(function() return redis.call('get', 'k') end)()
return coroutine.status(coroutine.create(function() end))
coroutine.create(5)
coroutine.yield(1)
coroutine.resume(5)
return coroutine.running()
local function f(n) return f(n + 1) end return f
local function f(n) return n == 0 and 'done' or f(n - 1) end return f(100000)
local function f() return 1 + f() end return f()
return loadstring('return 5')()
return {loadstring('syntax error')}
return {loadstring('return x', '=name')}
return loadstring('return redis.call("get", "k")')()
return {loadstring('x = 1', 'chunk') ~= nil}
return loadstring('x = 1')()
return load(function() return nil end) ~= nil
local n = 0 return load(function() n = n + 1 return ({'return ', '7'})[n] end)()
load(5)
return {load(function() error('reader') end)}
syntax error
return (
return 'unfinished
x =
goto end
return redis.call('eval', 'return 1', 0)
return redis.call('script', 'flush')
return redis.call('multi')
return redis.call('exec')
return redis.call('watch', 'k')
return redis.call('subscribe', 'c')
return redis.call('publish', 'c', 'm')
return redis.call('auth', 'x')
return redis.call('hello')
return redis.call('config', 'get', 'hz')
return redis.call('config', 'set', 'hz', '10')
return redis.call('debug', 'sleep', '0')
return redis.call('client', 'id')
return redis.call('xgroup', 'nothing')
return redis.call('xgroup')
return redis.call('object', 'help')
return redis.call('keys', '*') ~= nil
return redis.call('flushall')
return redis.call('randomkey')
return redis.call('wait', 0, 0)
return redis.call('save')
return redis.call('shutdown')
return redis.call('GET', 'k')
return redis.call('GeT', 'k')
return xpcall(1.5)
return {xpcall(function() error('x') end, nil)}
return {xpcall(function() error('x') end, setmetatable({}, {__call = function() return 1 end}))}
xpcall()
return setmetatable('10')
return setmetatable({})
setmetatable(setmetatable({}, {__metatable = 1}), {})
return string.match('a', 'a', 'x')
return string.gsub('a', 'a)', function() end)
return {pcall(function() return string.find('a', '%') end)}
return {pcall(function() string.gsub('a', '[a', {}) end)}
return {pcall(function() local v = getmetatable() end)}
for k in next, 'a' do end
for k in next, nil do end
return select('#', loadstring('return 1'))
return select('#', pcall(error, {}))
load()
load('x', {})
load(function() return {} end)
return {load(function() return {} end)}
coroutine.wrap()
coroutine.wrap(next)
return coroutine.wrap(pcall)
return coroutine.resume(1)
return coroutine.wrap(function() error('x') end)()
return coroutine.wrap(function() error(5) end)()
error('x', 3)
error(cjson.null)
return {pcall(error, cjson.null)}
unpack()
unpack({}, 'x')
unpack({}, 1, 1e8)
return select('#', unpack({}, 1, 1e15))
return {pcall(function() return unpack({}, 1, 8000) end)}
return select('#', unpack({}, -5, -3))
table.insert()
table.insert({}, 1, 2, 3)
table.insert({}, 'x', 1)
table.sort({2, 1}, 1)
table.remove({}, 'x')
math.random(0)
math.random(1, 2, 3)
math.random('x')
return select('#', redis.set_repl(3))
return {pcall(redis.setresp, 2)}
return {loadstring('\27Lua', '@file')}
"""

SANDBOX = r"""
redis = 5
redis.call = 5
redis.new = 5
_G.redis = 5
_G.new = 5
_G = {}
string.rep = nil
string.new = 1
table.concat = 1
math.pi = 3
rawset(_G, 'x', 1)
rawset(redis, 'call', 1)
rawset(redis, 1)
rawset(5, 1, 1)
setmetatable(_G, {})
setmetatable(redis, {})
setmetatable(5, {})
setmetatable({}, 5)
return getmetatable(redis) == nil
return type(getmetatable(_G))
getmetatable(_G).__index = 5
return type(getmetatable(_G).__index)
return type(getmetatable(''))
return getmetatable('').__index == string
return rawget(_G, 'missing') == nil
return type(rawget(_G, 'redis'))
return rawget(redis, 'missing') == nil
return redis.missing == nil
return redis.missing.deeper
return _G.missing
return _G[1]
return _G[{}]
return _G[true]
return _G.redis == redis
return _G._G == _G
table.insert(redis, 1)
table.insert(_G, 1)
return {unpack({1, 2, 3}, 0, 2147483647)}
return {unpack({1, 2, 3}, -2, 2147483647)}
return {unpack({1, 2, 3}, 1, 2147483647)}
return {unpack({1, 2, 3}, -2147483648, -2)}
return {unpack({1, 2, 3}, -2147483648)}
return {unpack({1, 2, 3}, 2147483647, 2147483647)}
return {select('#', unpack({1, 2, 3}, -1, 5))}
return {select('#', unpack({1, 2, 3}, 1, 7000))}
return {unpack({1, 2, 3}, '2', '3')}
return {unpack({1, 2, 3}, 2)}
return {unpack({1, 2, 3}, nil, 2)}
return {unpack({1, 2, 3}, 3, 2)}
return unpack({1, 2, 3}, 'x')
return unpack({1, 2, 3}, 1, {})
return unpack()
return unpack(5)
table.remove(redis)
table.sort(redis)
local n = 0 for k in pairs(redis) do n = n + 1 end return n > 10
local t = {} for k, v in pairs(redis) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
local t = {} for k, v in pairs(_G) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
local t = {} for k, v in pairs(string) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
local t = {} for k, v in pairs(table) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
local t = {} for k, v in pairs(math) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
local t = {} for k, v in pairs(coroutine) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
local t = {} for k, v in pairs(os) do t[#t + 1] = k .. ' ' .. type(v) end table.sort(t) return t
return next(redis) ~= nil
return debug
return io
return os
return require
return package
return module
return dofile
return loadfile
return print
print('x')
return python
return type(newproxy)
return type(getfenv)
return type(setfenv)
return getfenv(0) == _G
return getfenv(1) == _G
return getfenv() == _G
return getfenv(redis.call) == _G
return getfenv(print)
getfenv(0).x = 1
getfenv(99)
setfenv(1, {redis = redis}) return redis.call('get', 'k')
local f = function() return y end setfenv(f, {y = 5}) return f()
setfenv(99, {})
setfenv(print, {})
setfenv(tostring, {})
return tostring(loadstring(string.dump(function() return 1 end)))
return type(string.dump(function() end))
return collectgarbage('count') > 1
return collectgarbage()
return collectgarbage('step')
collectgarbage('nothing')
return gcinfo() > 1
return _VERSION
return type(redis.call) .. type(redis.pcall) .. type(redis.log)
__redis__err__handler('x')
return type(__redis__err__handler)
return server
return rawequal(redis, redis)
return tostring(redis):sub(1, 5)
return #redis
return redis == redis
"""

# Redis 7.0.15 ends with a signal at each of these; the last one ends all the servers.
CRASHES = ("error({})", "error({1, 2})", "return {load(function() return 5 end)}")


def lines(text: str) -> list[str]:
    """Return the scripts of a table, one a line."""
    return text.strip().split("\n")
