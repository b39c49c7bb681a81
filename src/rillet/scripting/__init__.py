"""Lua scripts: one interpreter for each engine, inside a sandbox.

    EVAL -> commands/scripting -> Scripts.run -> LuaStack.run -> the script -> redis.call -> ScriptCalls.called
                                                                      <- Lua value <- session.out <- Engine.call

Modules, in reading order:

    flags.py        the first line of a script: "#!lua flags=no-writes"
    faults.py       errors that Python code raises inside a script
    sandbox.py      the Lua source of the sandbox: the names that a script can reach, and the reply of a script
    lua_libraries/  the libraries of a script, such as cjson
    interpreter.py  lupa's runtime: how the sandbox is built, and how a script is compiled
    lua_api.py      the C functions of lupa's Lua; lua_stack.py, values that pass to Lua and back (compiled)
    lua_reply.py    a reply as a Lua value; lua_value.py, a Lua value as a reply (compiled)
    calls.py        redis.call: the checks, the command (compiled)
    scripts.py      the cache of scripts, and one run of a script

Only interpreter.py imports lupa, at the first script.
"""
