"""The C API of lupa's Lua 5.1: the addresses of its functions.

lupa's extension module contains Lua, and exports its functions as extension modules of Lua require. `find_functions`
looks them up by name. Compiled code calls them through the table `lua`, whose type lua_functions.pxd declares (lua.h).
Where a platform hides the functions, AttributeError is raised, and rillet uses lupa's objects (lua_stack.py).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython

if not cython.compiled:
    lua: Any = None
    c_function = of_index = of_two = of_three = put_nothing = put_int = put_two = put_number = put_string = lua
    put_pointer = put_closure = put_name = get_double = get_pointer = get_string = get_size = lua
else:
    from cython.cimports.rillet.scripting.lua_functions import (
        LuaFunctions,
        c_function,
        get_double,
        get_pointer,
        get_size,
        get_string,
        of_index,
        of_three,
        of_two,
        put_closure,
        put_int,
        put_name,
        put_nothing,
        put_number,
        put_pointer,
        put_string,
        put_two,
    )

    lua = cython.declare(LuaFunctions)


@cython.cfunc
def _address(library: Any, name: str) -> cython.size_t:
    """Return the address of a function of lupa's extension module; AttributeError if it is not exported."""
    import ctypes

    address: cython.size_t = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    return address


def find_functions(path: str) -> None:
    """Fill `lua` with the functions of an extension module; OSError, AttributeError if that is impossible."""
    import ctypes

    library = ctypes.CDLL(path)
    lua.gettop = cython.cast(c_function, _address(library, "lua_gettop"))
    lua.settop = cython.cast(put_int, _address(library, "lua_settop"))
    lua.remove = cython.cast(put_int, _address(library, "lua_remove"))
    lua.type = cython.cast(of_index, _address(library, "lua_type"))
    lua.checkstack = cython.cast(of_index, _address(library, "lua_checkstack"))
    lua.pushnil = cython.cast(put_nothing, _address(library, "lua_pushnil"))
    lua.pushnumber = cython.cast(put_number, _address(library, "lua_pushnumber"))
    lua.pushlstring = cython.cast(put_string, _address(library, "lua_pushlstring"))
    lua.pushboolean = cython.cast(put_int, _address(library, "lua_pushboolean"))
    lua.pushlightuserdata = cython.cast(put_pointer, _address(library, "lua_pushlightuserdata"))
    lua.pushcclosure = cython.cast(put_closure, _address(library, "lua_pushcclosure"))
    lua.createtable = cython.cast(put_two, _address(library, "lua_createtable"))
    lua.pushvalue = cython.cast(put_int, _address(library, "lua_pushvalue"))
    lua.next = cython.cast(of_index, _address(library, "lua_next"))
    lua.objlen = cython.cast(get_size, _address(library, "lua_objlen"))
    lua.rawset = cython.cast(put_int, _address(library, "lua_rawset"))
    lua.rawgeti = cython.cast(put_two, _address(library, "lua_rawgeti"))
    lua.rawseti = cython.cast(put_two, _address(library, "lua_rawseti"))
    lua.setfield = cython.cast(put_name, _address(library, "lua_setfield"))
    lua.tolstring = cython.cast(get_string, _address(library, "lua_tolstring"))
    lua.tonumber = cython.cast(get_double, _address(library, "lua_tonumber"))
    lua.toboolean = cython.cast(of_index, _address(library, "lua_toboolean"))
    lua.touserdata = cython.cast(get_pointer, _address(library, "lua_touserdata"))
    lua.pcall = cython.cast(of_three, _address(library, "lua_pcall"))
    lua.error = cython.cast(c_function, _address(library, "lua_error"))
    lua.gc = cython.cast(of_two, _address(library, "lua_gc"))
    lua.ref = cython.cast(of_index, _address(library, "luaL_ref"))
