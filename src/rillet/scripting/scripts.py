"""The scripts of one engine: the cache, and one run of a script (Redis: eval.c, script.c).

    SCRIPT LOAD, EVAL   -> CachedScript(sha, body, flags, function) in `cache`
    EVAL, EVALSHA       -> run(session, script, ...): the checks of scriptPrepareForRun, then the Lua function

A script that EVAL brought can be evicted (7.4 and newer: the least recently used of more than 500); one of SCRIPT LOAD
stays until SCRIPT FLUSH.

The interpreter is created with the first script. Another `compat` needs other names in the sandbox, so the interpreter
is created again, and the scripts are compiled again when they run.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from rillet.errors import CommandError, Misconf, NoReplicas, OutOfMemory, ReadOnly
from rillet.runtime.admission import FEW_REPLICAS, READ_ONLY
from rillet.runtime.replica import check_script
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.scripting import flags as flag
from rillet.scripting.calls import CachedScript, ScriptCalls
from rillet.scripting.functions import Functions
from rillet.scripting.interpreter import Interpreter

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.engine import Engine

MOST_EVAL_SCRIPTS = 500
"""The scripts of EVAL that 7.4 and newer keep (eval.c: LRU_LIST_LENGTH)."""
_STACK = 4000  # words that are passed as arguments; more are passed in tables
_OVERHEAD = 200  # bytes that the cache counts for a script beside its source

UNKILLABLE = (
    "Sorry the script already executed write commands against the dataset. You can either wait the script termination "
    "or kill the server in a hard way using the SHUTDOWN NOSAVE command."
)


class Scripts:
    """The scripts of an engine, and the interpreter that runs them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.calls = ScriptCalls(engine)
        self.functions = Functions(engine, self.calls)
        self.interpreter: Interpreter | None = None
        self.cache = self.calls.cache
        self.evictable = self.calls.evictable
        self.evicted = 0
        self.cached_bytes = 0
        self._limit = 0

    # -- the interpreter ---------------------------------------------------------------------------------

    def ready(self) -> Interpreter:
        """Return the interpreter; create it if there is none for the current `compat`."""
        settings = self.engine.settings
        if self.interpreter is None or self.interpreter.compat is not settings.compat:
            self.reset()
            natives = self.calls.functions()
            self.interpreter = Interpreter(
                settings.compat, settings.lua_memory_limit, natives, self.calls, settings.lua_enable_deprecated_api
            )
            self.calls.attach(self.interpreter)
            self._limit = settings.lua_memory_limit
        elif self._limit != settings.lua_memory_limit:
            self._limit = settings.lua_memory_limit
            self.interpreter.take_limit(self._limit)
        self.calls.settled = self.interpreter.stack.native
        return self.interpreter

    def reset(self) -> None:
        """Drop the interpreter; the scripts are compiled again when they run."""
        for script in self.cache.values():
            script.function = None
            script.number = 0
        self.interpreter = None
        self.calls.settled = False
        self.calls.attach(None)

    # -- the cache ---------------------------------------------------------------------------------------

    def find(self, sha: bytes) -> CachedScript | None:
        """Return the script of that SHA1, in any case of letters."""
        return self.cache.get(sha) or self.cache.get(sha.lower())

    def load(self, body: bytes, *, evictable: bool) -> CachedScript:
        """Return the script of this source, compiled; CommandError if it is malformed."""
        sha = sha1(body, usedforsecurity=False).hexdigest().encode()
        script = self.cache.get(sha)
        if script is None:
            script = CachedScript(sha, body, flag.parse(body, self.engine.settings.compat.valkey))
            self.compile(script)
            compat = self.engine.settings.compat
            if evictable and (compat.knows(74) or compat.valkey):
                self._make_room()
                self.evictable[sha] = None
                script.evictable = True
            self.cache[sha] = script
            self.cached_bytes += len(body) + _OVERHEAD
        elif not evictable and self.engine.settings.compat.valkey:
            self.evictable.pop(sha, None)
            script.evictable = False
        return script

    def _make_room(self) -> None:
        while len(self.evictable) >= MOST_EVAL_SCRIPTS:
            oldest, _ = self.evictable.popitem(last=False)
            self.cached_bytes -= len(self.cache.pop(oldest).body) + _OVERHEAD
            self.evicted += 1

    def compile(self, script: CachedScript) -> None:
        """Compile the source for the current interpreter; its first line, if it declares flags, is replaced."""
        interpreter = self.ready()
        script.function = interpreter.compile(script.body[script.skipped :])
        script.number = interpreter.hold(script.function)

    def flush(self) -> None:
        """Forget all scripts, and the state of Lua (SCRIPT FLUSH)."""
        self.cache.clear()
        self.evictable.clear()
        self.cached_bytes = 0
        self.reset()

    def memory(self) -> int:
        """Return the bytes that Lua uses."""
        return 0 if self.interpreter is None else self.interpreter.memory()

    # -- running -----------------------------------------------------------------------------------------

    def run(self, session: Session, script: CachedScript, key_count: int, argv: list[bytes], read_only: bool) -> None:
        """Run a script for a session, which gets its reply. Its keys and arguments begin at argv[3]."""
        self.check(session, script.flags, read_only)
        interpreter = self.ready()
        if script.function is None:
            self.compile(script)
        if script.evictable:
            self.evictable.move_to_end(script.sha)
        if interpreter.stack.native:
            self.calls.run(session, script.sha, script.flags, read_only, script.number, False, argv, key_count)
        else:
            self._run_with_lupa(interpreter, session, script, key_count, argv[3:], read_only)

    def _run_with_lupa(
        self, interpreter: Interpreter, session: Session, script: CachedScript, key_count: int, words: list[bytes],
        read_only: bool,
    ) -> None:  # fmt: skip
        calls = self.calls
        interpreter.collect(sum(map(len, words)))
        calls.start(session, script.sha, script.flags, read_only)
        resp = session.out.resp
        try:
            if len(words) <= _STACK:
                value = interpreter.run(script.function, resp, key_count, *words)
            else:
                table = interpreter.lua.table_from
                keys, args = table(words[:key_count]), table(words[key_count:])
                value = interpreter.run_tables(script.function, resp, keys, args)
        except interpreter.error as error:
            interpreter.restore_limit()
            raise CommandError(f"Error running script {script.sha.decode()}, {str(error)[:100]}") from error
        finally:
            calls.end()
        calls.reply(session, value)

    def check(self, session: Session, flags: int, read_only: bool) -> None:
        """Raise the errors of scriptPrepareForRun, for a script that declares flags."""
        if flags & flag.COMPAT_MODE or session.state & TRUSTED:
            if read_only and not flags & (flag.COMPAT_MODE | flag.NO_WRITES):
                raise CommandError("Can not execute a script with write flag using *_ro command.")
            if self.engine.follows and not session.state & TRUSTED:
                check_script(self.engine, False, False)
            return
        engine = self.engine
        if engine.follows:
            check_script(engine, not flags & flag.NO_WRITES, bool(flags & flag.ALLOW_STALE))
        if not flags & flag.NO_WRITES:
            if engine.refusal is not None:
                if engine.refusal == FEW_REPLICAS:
                    raise NoReplicas()
                raise ReadOnly() if engine.refusal == READ_ONLY else Misconf(engine.refusal)
            if read_only:
                raise CommandError("Can not execute a script with write flag using *_ro command.")
        if engine.out_of_memory and not flags & (flag.ALLOW_OOM | flag.NO_WRITES):
            raise OutOfMemory()


def scripts_of(engine: CommandEngine) -> Scripts:
    """Return the scripts of an engine; the first call creates them."""
    if engine.scripts is None:
        engine.scripts = Scripts(engine)  # type: ignore[arg-type]
    scripts: Scripts = engine.scripts
    return scripts
