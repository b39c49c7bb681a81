"""lupa's Lua 5.1: the sandbox in it, the compiled scripts, and the limit of its memory.

Memory. lupa refuses an allocation above the limit, and Lua raises "not enough memory" in the script. While Python code
builds a value for Lua there is no script that could catch that error, so Python code starts only if RESERVE bytes are
left below the limit (`check_memory`), and a larger value is checked before it is built. An error of Python code needs a
little memory, too: `fault` lifts the limit for a moment, and `taken` restores it.

lupa keeps each table or function that Lua passes to Python in a list of references. The list is extended in advance
to the largest number of arguments that a call can have, so that it never grows in the middle of a conversion.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from traceback import clear_frames
from typing import Any

from rillet.errors import CommandError
from rillet.scripting.faults import UNCOUNTED, ScriptFault, taken
from rillet.scripting.lua_libraries import argument_checks, install, keeper
from rillet.scripting.lua_reply import ReplyReader
from rillet.scripting.lua_stack import LuaCaller, LuaStack
from rillet.scripting.sandbox import SANDBOX
from rillet.types.compat import Compat

HOOK_PERIOD = 100_000
"""Lua instructions between two calls of the hook (script_lua.c: luaCallFunction)."""
LONGEST_PATTERN = 2000
"""Longest pattern of string.find and similar functions, in bytes: Lua uses the stack of C for each of its items."""
RESERVE = 16 * 1024 * 1024
"""Bytes below the memory limit at which Python code no longer starts."""
EXTENSION = ""
"""The extension module with the C API of Lua, if that is not lupa's."""
_MOST_ARGUMENTS = 8192  # LUAI_MAXCSTACK is 8000
_GARBAGE = 64 * 1024  # bytes that INFO may count too many
_MISSING = "Lua scripts need the package lupa: pip install lupa"


class Interpreter:
    """One Lua state. `functions` are the Python functions that the sandbox uses, by name; `caller` is redis.call.

    `environments`: scripts may use getfenv and setfenv (lua-enable-deprecated-api).
    """

    def __init__(
        self,
        compat: Compat,
        limit: int,
        functions: dict[bytes, Callable[..., Any]],
        caller: LuaCaller,
        environments: bool = False,
    ) -> None:
        try:
            from lupa import lua51  # type: ignore[import-untyped, unused-ignore]
        except ImportError as error:
            raise CommandError(_MISSING) from error
        self.compat = compat
        self._environments = environments
        self.type_of: Callable[[object], str | None] = lua51.lua_type
        self.limit_set = limit
        # The exceptions of lupa, for an error that no part of the sandbox catches.
        self.error: type[Exception] = lua51.LuaError
        # Bytes that the scripts may use, with the reserve; 0: no limit.
        self.limit = limit + RESERVE if limit else 0
        self.lua: Any = lua51.LuaRuntime(
            encoding=None, source_encoding="latin-1", register_eval=False, register_builtins=False,
            unpack_returned_tuples=True, attribute_filter=_no_attribute, max_memory=self.limit,
        )  # fmt: skip
        self.used: Callable[[], int] = self.lua.get_memory_used
        self.stack = LuaStack(self.lua, caller, self.error)
        self.reader = ReplyReader(self.stack)
        natives_in_c = self.lua.table()
        set_up = self.stack.connect(EXTENSION or lua51.__file__)
        if set_up is not None:
            set_up(natives_in_c)
        python = self.lua.globals()[b"python"]
        natives = self.lua.table_from({**functions, b"taken": self._taken})
        # The libraries take what they need from Lua's globals, so they come before the sandbox hides those.
        protection = self.lua.table()
        marks_arrays = compat.knows(86) and not compat.valkey
        libraries = install(
            self.lua.execute, array_metatables=marks_arrays, valkey=compat.valkey, protect=protection
        )
        functions_of_sandbox = self.lua.execute(SANDBOX, python, natives, self._options(natives_in_c), name="=[rillet]")
        self.run: Any = functions_of_sandbox[b"run"]
        self.run_tables: Any = functions_of_sandbox[b"run_tables"]
        self.run_function: Any = functions_of_sandbox[b"run_function"]
        self.load_library: Any = functions_of_sandbox[b"load_library"]
        self._compile: Any = functions_of_sandbox[b"compile"]
        self._where: Any = functions_of_sandbox[b"where"]
        self.environment: Any = functions_of_sandbox[b"environment"]
        self.as_function: Any = functions_of_sandbox[b"as_function"]
        self.hold: Any = functions_of_sandbox[b"hold"]
        if set_up is not None:
            set_up(*(functions_of_sandbox[name] for name in (b"held", b"handler", b"end_of_run", b"globals")))
            self.stack.rethrow = functions_of_sandbox[b"rethrow"]
        self._take_kilobytes()
        protection[b"protect"] = functions_of_sandbox[b"protect"]
        for name, table in libraries.items():
            functions_of_sandbox[b"add_library"](name, table)
        # References of lupa to so many objects at once fit without an allocation.
        references = [self.lua.table() for _ in range(_MOST_ARGUMENTS)]
        references.clear()
        del references
        self.lua.gccollect()
        # Bytes of the sandbox and its libraries: of Redis's, some are in C.
        self.base: int = self.used() or 0

    def _options(self, natives_in_c: Any) -> Any:
        compat = self.compat
        major, minor, patch = (int(part) for part in compat.redis_version.split("."))
        constants: dict[bytes, Any] = {
            b"LOG_DEBUG": 0, b"LOG_VERBOSE": 1, b"LOG_NOTICE": 2, b"LOG_WARNING": 3, b"REPL_NONE": 0, b"REPL_AOF": 1,
            b"REPL_SLAVE": 2, b"REPL_REPLICA": 2, b"REPL_ALL": 3, b"REDIS_VERSION": compat.redis_version.encode(),
            b"REDIS_VERSION_NUM": major << 16 | minor << 8 | patch,
        }  # fmt: skip
        if compat.valkey:
            major, minor, patch = (int(part) for part in compat.valkey_version.split("."))
            constants[b"VALKEY_VERSION"] = compat.valkey_version.encode()
            constants[b"VALKEY_VERSION_NUM"] = major << 16 | minor << 8 | patch
            constants[b"SERVER_NAME"] = b"valkey"
        return self.lua.table_from({
            b"constants": self.lua.table_from(constants),
            b"api": b"server" if compat.valkey else b"redis",
            b"hook_period": HOOK_PERIOD,
            b"longest_pattern": LONGEST_PATTERN,
            b"os_clock": compat.knows(74) or compat.valkey,
            b"environments": self._environments,
            b"handler": True,
            b"natives_in_c": natives_in_c,
            b"keep_frames": keeper(self.lua.execute),
            b"checks": argument_checks(self.lua.execute),
        })  # fmt: skip

    def take_limit(self, limit: int) -> None:
        """Use another limit of memory from now on, in bytes without the reserve."""
        self.limit_set = limit
        self.limit = limit + RESERVE if limit else 0
        self.lua.set_max_memory(self.limit)
        self._take_kilobytes()

    def _take_kilobytes(self) -> None:
        self.stack.most_kilobytes = self.limit_set >> 10 if self.limit_set else sys.maxsize

    # -- errors and memory -------------------------------------------------------------------------------

    def where(self) -> bytes:
        """Return "user_script:1: ", the position of the call of the Python function that runs (luaL_where)."""
        text: bytes = self.lua.eval(b"(function(f) local text = f() return text end)(...)", self._where)
        return text

    def fault(self, message: bytes, kind: int = UNCOUNTED) -> ScriptFault:
        """Return an error to raise in the script, even if its memory is used up."""
        if self.limit:
            self.lua.set_max_memory(0)
        return ScriptFault(message, kind)

    def restore_limit(self) -> None:
        """Limit the memory again after `fault`."""
        if self.limit:
            self.lua.set_max_memory(self.limit)

    def _taken(self, error: object) -> tuple[bytes, int] | None:
        self.restore_limit()
        # lupa's references to values of a coroutine must not outlive it, and a traceback would keep them.
        if isinstance(error, ScriptFault) and error.__traceback__ is not None:
            clear_frames(error.__traceback__)
        return taken(error)

    def memory(self) -> int:
        """Return the bytes that the scripts use, without most of the garbage. O(bytes) if there may be some."""
        if self.used() > self.base + _GARBAGE:
            self.lua.gccollect()
        return max(0, self.used() - self.base)

    def collect(self, size: int) -> None:
        """Free memory before a script whose arguments have `size` bytes; CommandError if it is not enough."""
        if self.limit and self.used() + 2 * size > self.limit - RESERVE:
            self.lua.set_max_memory(0)
            self.lua.gccollect()
            self.lua.set_max_memory(self.limit)
            if self.used() + 2 * size > self.limit - RESERVE:
                raise CommandError("not enough memory for the script: lua-memory-limit is reached")

    def check_memory(self, more: int = 0) -> None:
        """Raise an error in the script if too little memory is left for a value of so many bytes."""
        if self.limit and self.used() + more > self.limit - RESERVE:
            raise self.fault(b"not enough memory", 0)

    # -- scripts -----------------------------------------------------------------------------------------

    def compile(self, source: bytes, name: bytes = b"@user_script", environment: Any = None) -> Any:
        """Return a Lua function for a script; CommandError with Lua's message if the source is malformed."""
        self.collect(len(source))  # a failed allocation outside of a script would end the process
        chunk, message = self._compile(source, name, environment)
        if chunk is None:
            raise CommandError(f"Error compiling script (new function): {message.decode('utf-8', 'surrogateescape')}")
        return chunk


def _no_attribute(_target: object, name: object, _is_setting: bool) -> object:
    """Refuse every access of Lua to an attribute of a Python object; no script ever has such an object."""
    raise AttributeError(name)
