"""redis.call and redis.pcall: Lua values -> ArgumentSpans -> Engine.call_spans -> session.out -> a Lua value.

All scripts of an engine share one session, which is in no list of clients. It never blocks. From `start` to `end` it
runs the commands of one script, in the caller's database and with the caller's rights; time stands still.

The checks are those of script.c: scriptCall, in its order. A script that has written cannot be refused any more: then
neither `maxmemory` nor a failed disk stops it.

The reply is read from the bytes in session.out, because every command writes its reply there (lua_reply.py). Most
commands take their arguments from where Lua stores them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import registry, session_state
from rillet.runtime.acl.user import User
from rillet.runtime.admission import FEW_REPLICAS, READ_ONLY, denies_oom
from rillet.runtime.engine import Engine
from rillet.runtime.propagation import LOG_ONLY
from rillet.runtime.registry import Command
from rillet.runtime.replica import script_refusal
from rillet.runtime.session import Session
from rillet.scripting import flags as flag
from rillet.scripting.checkpoint import checkpoint
from rillet.scripting.faults import REPLY, TEXT, UNCOUNTED, ScriptFault
from rillet.scripting.lua_reply import ReplyReader
from rillet.scripting.lua_stack import CALL, RESP, LuaCaller, LuaStack
from rillet.scripting.script_clock import ScriptClock, install
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.float_text import as_integer, digits_17, reply_text, shortest
from rillet.structs.integer_text import decimal

_RESTRICTED = cython.declare(cython.int, session_state.RESTRICTED)
_INHERITED = cython.declare(
    cython.int,
    session_state.RESTRICTED | session_state.TRUSTED | session_state.MASTER | session_state.NO_TOUCH,
)
_IN_SCRIPT = cython.declare(cython.int, session_state.IN_EXEC | session_state.IN_SCRIPT)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
_KEEPS_TEXT = cython.declare(cython.int, session_state.KEEPS_TEXT)
_AOF = cython.declare(cython.int, 1)  # redis.REPL_AOF
_OUTSIDE = b"ERR redis.call/pcall can only be called inside a script invocation"
_ALL = cython.declare(cython.int, 3)  # redis.REPL_ALL
_LEVELS = ("debug", "verbose", "notice", "warning")
_LARGE = cython.declare(cython.Py_ssize_t, 1 << 20)  # a buffer of replies that is not kept
_CHECKED = cython.declare(cython.Py_ssize_t, 1 << 17)  # a reply whose values may need much memory
_VALUE = 128  # bytes of Lua for a value in a reply, at most, beside its own
_CALL = cython.declare(cython.int, CALL)
_RESP = cython.declare(cython.int, RESP)
_NO_WRITES = cython.declare(cython.int, flag.NO_WRITES)
_ALLOW_OOM = cython.declare(cython.int, flag.ALLOW_OOM)
_ARITY_GREW = cython.declare(cython.int, registry.ARITY_GREW)
_NO_SCRIPT = cython.declare(cython.int, registry.NO_SCRIPT)
_MAY_CHANGE = cython.declare(cython.int, registry.WRITES | registry.MAY_REPLICATE)
_FOR_CLIENTS = cython.declare(cython.int, session_state.FOR_CLIENTS)
_COMPAT_MODE = cython.declare(cython.int, flag.COMPAT_MODE)


@cython.final
@cython.cclass
class CachedScript:
    """A cached script.

    function: its Lua function, None until it is compiled for the current interpreter; number: that of the function in
    the C API, or 0; evictable: whether it leaves the cache when many scripts follow; skipped: the bytes of a first line
    that declares flags.
    """

    __slots__ = ("body", "evictable", "flags", "function", "number", "sha", "skipped")
    sha: readonly[bytes]
    body: readonly[bytes]
    flags: readonly[cython.int]
    skipped: readonly[cython.Py_ssize_t]
    function: public[Any]
    number: public[cython.int]
    evictable: public[cython.bint]

    def __init__(self, sha: bytes, body: bytes, shebang: flag.Shebang) -> None:
        self.sha = sha
        self.body = body
        self.flags, self.skipped = shebang
        self.function = None
        self.number = 0
        self.evictable = False


@cython.final
@cython.cclass
class ScriptCalls(LuaCaller):
    """The Python functions of the sandbox for one engine, and the state of the running script."""

    __slots__ = (
        "engine", "session", "caller", "name", "running", "wrote", "read_only", "busy", "started_ms",
        "function", "clock", "cache", "evictable", "settled", "_interpreter", "_stack", "_reader", "_repl",
        "_allow_oom", "_announced", "_flags",
    )  # fmt: skip
    engine: public[Engine]
    session: public[Session]
    caller: public[Session | None]
    name: public[bytes]
    running: public[cython.bint]
    wrote: public[cython.bint]
    read_only: public[cython.bint]
    busy: public[cython.bint]
    function: public[cython.bint]
    started_ms: public[cython.longlong]
    clock: readonly[ScriptClock]
    cache: readonly[dict[bytes, CachedScript]]
    evictable: readonly[OrderedDict[bytes, None]]
    settled: public[cython.bint]
    _interpreter: Any
    _stack: LuaStack | None
    _reader: ReplyReader | None
    _repl: cython.int
    _allow_oom: cython.bint
    _announced: cython.bint
    _flags: cython.int

    def __init__(self, engine: Engine) -> None:
        LuaCaller.__init__(self)
        self.engine = engine
        self.clock = install(engine)
        self.session = Session(engine, engine.databases[0], 0)
        self.session.created_ms = self.session.last_ms = engine.clock.now_ms()
        self.caller = None
        self.name = b""
        # Whether a script runs; whether it has called a write command; whether it may not write;
        # whether it runs for longer than busy-reply-threshold; whether it is a function of a library.
        self.running = False
        self.wrote = False
        self.read_only = False
        self.busy = False
        self.function = False
        self.started_ms = 0
        # The scripts by their SHA1; those that EVAL brought, least recently used first; whether the interpreter fits
        # the settings.
        self.cache = {}
        self.evictable = OrderedDict()
        self.settled = False
        self._interpreter = None
        self._stack = None
        self._reader = None
        # The destinations of writes (redis.set_repl): REPL_AOF and REPL_REPLICA.
        self._repl = 3
        self._allow_oom = False
        self._announced = False
        self._flags = _IN_SCRIPT  # of the session in every script

    def functions(self) -> dict[bytes, Callable[..., Any]]:
        """Return the Python functions that the sandbox uses, by name."""
        return {
            b"call": self.call, b"pcall": self.pcall, b"call_many": self.call_many, b"pcall_many": self.pcall_many,
            b"sha1hex": self.sha1hex, b"log": self.log,
            b"set_repl": self.set_repl, b"acl_check_cmd": self.acl_check_cmd, b"setresp": self.setresp,
            b"resp": self.resp, b"double": self.double, b"count_error": self.count_error, b"interrupt": self.interrupt,
        }  # fmt: skip

    def attach(self, interpreter: Any) -> None:
        """Use this interpreter from now on."""
        self._interpreter = interpreter
        self._stack = None if interpreter is None else interpreter.stack
        self._reader = None if interpreter is None else interpreter.reader
        if interpreter is not None:
            self._flags = _IN_SCRIPT | (_KEEPS_TEXT if interpreter.compat.valkey else 0)

    # -- one run -------------------------------------------------------------------------------------

    @cython.ccall
    def start(self, caller: Session, name: bytes, flags: cython.int, read_only: cython.bint) -> cython.bint:
        """Begin a script for a client (script.c: scriptPrepareForRun)."""
        assert not self.running
        session: Session = self.session
        self.caller = caller
        self.name = name
        self.running = True
        self.wrote = False
        self.killed = False
        self._announced = False
        self.busy = False
        self.read_only = read_only or flags & (_COMPAT_MODE | _NO_WRITES) == _NO_WRITES
        self._allow_oom = flags & (_COMPAT_MODE | _ALLOW_OOM) == _ALLOW_OOM
        self._repl = 3
        session.db = caller.db
        session.account = caller.account
        session.out.resp = 2
        session.commands = 0
        session.state = self._flags | (caller.state & _INHERITED)
        self.started_ms = self.clock.ticks() // 1_000_000
        self.clock.freeze()
        return True

    @cython.ccall
    def end(self) -> cython.bint:
        """End the script (script.c: scriptResetRun)."""
        self.clock.unfreeze()
        self.running = False
        caller: Session | None = self.caller
        assert caller is not None
        ran: cython.longlong = self.session.commands
        if ran:
            # Commands of the client, but not words of its requests (CLIENT LIST: tot-cmds, avg-pipeline-len-sum).
            caller.commands += ran
            caller.remember("of_scripts", caller.extra.get("of_scripts", 0) + ran)
        self.caller = None
        self.session.out.truncate(0)
        if self.busy:
            self.busy = False
            self.engine.busy = False
            self.engine.services.script_ended()
        return True

    @cython.ccall
    def run(
        self, caller: Session, name: bytes, flags: cython.int, read_only: cython.bint, function: cython.int,
        of_library: cython.bint, argv: list[bytes], keys: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Run a held function for a client, without lupa: its keys and arguments begin at argv[3]."""
        stack: LuaStack | None = self._stack
        assert stack is not None and stack.native
        i: cython.Py_ssize_t
        size: cython.Py_ssize_t = 0
        for i in range(3, len(argv)):
            size += len(argv[i])
        if stack.kilobytes() + (size >> 9) >= stack.most_kilobytes:
            self._interpreter.collect(size)
        self.start(caller, name, flags, read_only)
        error: Any = None
        mark: cython.Py_ssize_t = caller.out.mark()
        try:
            error = stack.run(function, of_library, caller.out, argv, 3, keys)
        except stack.failure as failure:
            caller.out.truncate(mark)
            self._interpreter.restore_limit()
            text = f"Error running script {name.decode('utf-8', 'surrogateescape')}, {str(failure)[:100]}"
            raise CommandError(text) from failure
        finally:
            self.end()
        if error is not None:
            self._reply_error(caller, error)
        elif caller.out.used > mark and caller.out.buf[mark] == 45:  # "-": the script returned an error
            caller.engine.stats.count_failure(caller.command)
        return True

    @cython.ccall
    def run_cached(self, caller: Session, argv: list[bytes], read_only: cython.bint) -> cython.bint:
        """Run EVALSHA of a script that the interpreter knows and that declares no flags; else return False."""
        script: CachedScript | None = self.cache.get(argv[1])
        if script is None or script.number == 0 or not self.settled or not script.flags & _COMPAT_MODE:
            return False
        keys: cython.Py_ssize_t = _small_number(argv[2])
        if keys < 0 or keys > len(argv) - 3:
            return False
        if script.evictable:
            self.evictable.move_to_end(script.sha)
        return self.run(caller, script.sha, script.flags, read_only, script.number, False, argv, keys)

    def reply(self, session: Session, value: Any) -> None:
        """Write the value of a script, as the sandbox returns it, as the session's reply."""
        out: ReplyWriter = session.out
        kind = type(value)
        if kind is bytes:
            out.bulk(value)
        elif kind is int:
            out.integer(value)
        elif value is None:
            out.null()
        elif kind is float:
            out.integer(int(value) if -(2.0**63) <= value < 2.0**63 else -(2**63))
        elif len(value) == 2:
            out.raw(value[0])
            if value[0][:1] == b"-":
                session.engine.stats.count_failure(session.command)
        else:
            self._reply_error(session, value)

    def _reply_error(self, session: Session, value: tuple[Any, ...]) -> None:
        """Reply with the error of a script: its text, and the script and line (script_lua.c: luaCallFunction)."""
        message, known, source, line, counted = value
        valkey = self.engine.settings.compat.valkey
        if not known:
            message = message.split(b"\0")[0][:100]
            text = b"ERR Error running script, " if valkey else b"ERR Error running script " + self.name + b", "
            text += message
        else:
            text = message or (b"ERR unknown error" if self.engine.settings.compat.knows(72) else b"")
            text = text.split(b"\0")[0]
            if source and line is not False:
                place = source + b":" + (decimal(line) if type(line) is int else digits_17(line))
                text += (b" script: on " if valkey else b" script: " + self.name + b", on ") + place + b"."
        text = text.rstrip(b"\r\n")
        if not counted:
            self.count_error(text)
        session.engine.stats.count_failure(session.command)
        session.out.error(text)

    # -- redis.call ----------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def called(self, function: cython.int, stack: LuaStack) -> cython.int:
        """Run a function that Lua called through its C API; push its value and return 1, or an error and return -1."""
        if function == _RESP:
            stack.put_integer(self.resp())
            return 1
        try:
            return self._call_natively(stack, function == _CALL)
        except ScriptFault as fault:
            if fault.kind == TEXT:
                stack.put_bytes(fault.message)
            else:
                stack.put_error(fault.message, fault.kind == REPLY)
            self._interpreter.restore_limit()
            return -1

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _call_natively(self, stack: LuaStack, raises: cython.bint) -> cython.int:
        """Run the command whose words are on Lua's stack."""
        if self.running and stack.kilobytes() < stack.most_kilobytes and stack.take_words():
            return self._run(stack, stack.words, raises)
        argv: Any = stack.take_arguments()
        problem: bytes = b""
        if argv is None:
            problem = self._bad_arguments(stack.is_empty())
        return self._run_list(stack, argv, problem, raises)

    def call(self, *args: Any) -> Any:
        """Run a command and return its reply; raise its error in the script."""
        argv: Any = self._arguments(args)
        problem = self._bad_arguments(not args) if argv is None else b""
        args = ()  # a traceback must not keep lupa's references to values of a coroutine
        return self._run_for_lupa(argv, problem, True)

    def pcall(self, *args: Any) -> Any:
        """Run a command and return its reply, also if that is an error."""
        argv: Any = self._arguments(args)
        problem = self._bad_arguments(not args) if argv is None else b""
        args = ()
        return self._run_for_lupa(argv, problem, False)

    def call_many(self, words: Any, count: int) -> Any:
        """As `call`, for more arguments than lupa passes to a Python function: a table and its length."""
        return self.call(*[words[at] for at in range(1, count + 1)])

    def pcall_many(self, words: Any, count: int) -> Any:
        """As `pcall`, for more arguments than lupa passes to a Python function."""
        return self.pcall(*[words[at] for at in range(1, count + 1)])

    @cython.cfunc
    def _run_for_lupa(self, argv: list[bytes] | None, malformed: bytes, raises: cython.bint) -> object:
        if not self.running:
            raise self._interpreter.fault(_OUTSIDE)
        stack: LuaStack | None = self._stack
        assert stack is not None
        self._run_list(stack, argv, malformed, raises)
        return stack.pop_value()

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _run_list(
        self, stack: LuaStack, argv: list[bytes] | None, malformed: bytes, raises: cython.bint
    ) -> cython.int:
        """Do `_run` for a list of words, None if they are malformed."""
        if not self.running:
            raise self._interpreter.fault(_OUTSIDE)
        self._interpreter.check_memory()
        if argv is None:
            return self._failed(stack, malformed, raises, UNCOUNTED)
        words: ArgumentSpans = self.engine.take_spans()
        words.point_to(argv, 0, len(argv))
        try:
            return self._run(stack, words, raises)
        finally:
            self.engine.give_spans(words)

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _run(self, stack: LuaStack, words: ArgumentSpans, raises: cython.bint) -> cython.int:
        """Run a command and push its reply; return 1, or push the error that `redis.call` raises and return -1."""
        session: Session = self.session
        entry: Command | None = self.engine.command_of(words)
        problem: bytes | None = self._refusal(entry, words)
        if problem is not None:
            self.count_error(problem)
            if entry is not None:
                self.engine.stats.count_rejection(entry)
            return self._failed(stack, problem, raises, REPLY)
        assert entry is not None
        out: ReplyWriter = session.out
        self._empty(out)
        if entry.write:
            self.wrote = True
        if self._repl == _ALL or (self._repl == _AOF and not self.engine.propagation.feeds_replicas):
            self.engine.call_spans(session, entry, words)
        else:
            self._call_unlogged(session, entry, words)
        if session.pushes is not None:
            session.pushes = None
        return self._put_reply(stack, out, raises)

    @cython.cfunc
    def _empty(self, out: ReplyWriter) -> cython.bint:
        """Forget the last reply."""
        if len(out.buf) > _LARGE:
            out.take_bytes()
        return out.truncate(0)

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _put_reply(self, stack: LuaStack, out: ReplyWriter, raises: cython.bint) -> cython.int:
        """Push the reply of a command."""
        if out.used > _CHECKED:
            values = 1 if out.buf[0] == 36 else out.buf.count(b"\r\n", 0, out.used)
            self._interpreter.check_memory(out.used + _VALUE * values)
        if out.buf[0] == 45:  # "-"
            return self._failed(stack, bytes(out.buf[1 : out.used - 2]), raises, REPLY)
        reader: ReplyReader | None = self._reader
        assert reader is not None
        reader.put(stack, out)
        return 1

    @cython.cfunc
    def _call_unlogged(self, session: Session, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Run a command whose changes are not both logged and replicated (redis.set_repl)."""
        self.engine.propagation.end_run()
        pending = self.engine.propagation.pending
        before: cython.Py_ssize_t = len(pending)
        try:
            self.engine.call_spans(session, entry, words)
        finally:
            self.engine.propagation.end_run()
            if self._repl == _AOF:
                pending[before:] = [(LOG_ONLY + db % LOG_ONLY, argv) for db, argv in pending[before:] if db >= 0]
            elif self._repl and self.engine.propagation.feeds_replicas:
                pending[before:] = [(-1 - db if db >= 0 else db, argv) for db, argv in pending[before:]
                                    if db < LOG_ONLY]  # fmt: skip
            else:
                del pending[before:]
        return True

    @cython.cfunc
    def _arguments(self, args: tuple[Any, ...]) -> Any:
        """Return the words of a command, None if a value is neither a string nor a number."""
        argv: list[bytes] = []
        for arg in args:
            kind = type(arg)
            if kind is bytes:
                argv.append(arg)
            elif kind is int or kind is float:
                argv.append(self._number(arg))
            else:
                return None
        return argv if argv else None

    @cython.cfunc
    def _number(self, value: Any) -> bytes:
        """Return a number as text: 7.0 prints 17 digits, later servers print integers in full."""
        if type(value) is int and -10_000_000_000_000_000 < value < 10_000_000_000_000_000:
            return decimal(value)
        number: float = float(value)
        if not self.engine.settings.compat.knows(72):
            return digits_17(number)
        whole = as_integer(number)
        return shortest(number) if whole is None else decimal(whole)

    @cython.ccall
    def number_text(self, value: Any) -> bytes:
        """Return a number as a word of a command."""
        return self._number(value)

    @cython.cfunc
    def _bad_arguments(self, missing: cython.bint) -> bytes:
        """Return the error for words that are no command."""
        valkey = self.engine.settings.compat.valkey
        if missing:
            return b"ERR Please specify at least one argument for this " + (b"call" if valkey else b"redis lib call")
        return (b"ERR C" if valkey else b"ERR Lua redis lib c") + b"ommand arguments must be strings or integers"

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _failed(self, stack: LuaStack, message: bytes, raises: cython.bint, kind: cython.int) -> cython.int:
        """Push an error as a table; return -1 if it is to be raised, which lupa does at once."""
        if raises and not stack.native:
            raise self._interpreter.fault(message, kind)
        stack.put_error(message, kind == REPLY)
        return -1 if raises else 1

    @cython.cfunc
    def _refusal(self, entry: Command | None, words: ArgumentSpans) -> Any:
        """Return the error for a command that the script may not run, or None (script.c: scriptCall)."""
        engine: Engine = self.engine
        if entry is None or (entry.subcommands is not None and words.count > 1):
            return self._unknown(entry, words)
        traits: cython.int = entry.traits
        if not entry.accepts(words.count) or (
            traits & _ARITY_GREW and not entry.accepts_in(words.count, engine.settings.compat)
        ):
            return b"ERR Wrong number of args calling " + self._redis() + b"command from script"
        if traits & _NO_SCRIPT and not engine.settings.allow_noscript:
            waits = "blocking" in entry.flags or entry.name == "wait"
            if not (waits and engine.settings.compat.knows(72)):
                return b"ERR This " + (self._redis() or b"Valkey ") + b"command is not allowed from script"
        if self.session.state & _RESTRICTED:
            user: User = self.session.account
            if not user.surely_permits(entry, words):
                error = engine.acl.script_error(self.session, entry, words, self.caller)
                if error is not None:
                    return str(error).encode("utf-8", "surrogateescape")
        if self.read_only and traits & _MAY_CHANGE:
            return b"ERR Write commands are not allowed from read-only scripts."
        if engine.conditions & _FOR_CLIENTS == 0 or self.wrote or self.session.state & _TRUSTED:
            return None
        if entry.write and engine.refusal is not None:
            if engine.refusal == READ_ONLY:
                return b"READONLY You can't write against a read only replica."
            if engine.refusal == FEW_REPLICAS:
                return b"NOREPLICAS Not enough good replicas to write."
            return b"MISCONF " + engine.refusal.encode()
        if engine.follows:
            refused = script_refusal(engine, entry)
            if refused is not None:
                return refused
        if engine.out_of_memory and not self._allow_oom and denies_oom(entry, engine.settings.compat):
            return b"OOM command not allowed when used memory > 'maxmemory'."
        return None

    def _unknown(self, entry: Command | None, words: ArgumentSpans) -> bytes:
        """Return the error for a command or a subcommand that does not exist."""
        if entry is not None and not self._redis():
            name = words.get(1)[:128].split(b"\0")[0]
            return b"ERR unknown subcommand '" + name + b"'. Try " + entry.name.upper().encode() + b" HELP."
        return b"ERR Unknown " + self._redis() + b"command called from script"

    def _redis(self) -> bytes:
        """Return the word for Redis in its error messages, empty in those of Valkey."""
        return b"" if self._is_valkey() else b"Redis "

    def _is_valkey(self) -> bool:
        return bool(self.engine.settings.compat.valkey)

    # -- the other functions of the API --------------------------------------------------------------

    def sha1hex(self, *args: Any) -> bytes:
        """Return the SHA1 of a string in hexadecimal digits."""
        if len(args) != 1:
            raise self._interpreter.fault(b"ERR wrong number of arguments")
        text = args[0]
        if type(text) is int or type(text) is float:
            text = _lua_number(text)
        return sha1(text if type(text) is bytes else b"", usedforsecurity=False).hexdigest().encode()

    def log(self, *args: Any) -> tuple[()]:
        """Write a line to the server's log."""
        api = b"server" if self._is_valkey() else b"redis"
        if len(args) < 2:
            raise self._interpreter.fault(b"ERR " + api + b".log() requires two arguments or more.")
        number = _number_of(args[0])
        if number is None:
            raise self._interpreter.fault(b"ERR First argument must be a number (log level).")
        level = _integer_of(number)
        if not 0 <= level <= 3:
            word = b"log" if self.engine.settings.compat.knows(72) else b"debug"
            raise self._interpreter.fault(b"ERR Invalid " + word + b" level.")
        words = [_lua_number(arg) if type(arg) in (int, float) else arg for arg in args[1:]]
        line = b" ".join([word for word in words if type(word) is bytes])
        self.engine.services.log_line(line.decode("utf-8", "surrogateescape"), _LEVELS[level])
        return ()  # no value, where None would be nil

    def setresp(self, *args: Any) -> tuple[()]:
        """Select the protocol of the replies that the script gets."""
        if len(args) != 1:
            name = b"server" if self._is_valkey() else b"redis"
            raise self._interpreter.fault(b"ERR " + name + b".setresp() requires one argument.")
        version = _integer_of(args[0])
        if version != 2 and version != 3:
            raise self._interpreter.fault(b"ERR RESP version must be 2 or 3.")
        if self.running:
            self.session.out.resp = version
        return ()

    @cython.ccall
    def resp(self) -> cython.int:
        """Return the protocol that the script has selected."""
        return self.session.out.resp

    def set_repl(self, *args: Any) -> tuple[()]:
        """Select whether the following writes are logged and replicated."""
        name = b"server" if self._is_valkey() else b"redis"
        if len(args) != 1:
            word = b"one argument." if self.engine.settings.compat.knows(72) else b"two arguments."
            raise self._interpreter.fault(b"ERR " + name + b".set_repl() requires " + word)
        targets = _integer_of(args[0])
        if targets & ~3:
            raise self._interpreter.fault(
                b"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
            )
        self._repl = targets
        return ()

    def acl_check_cmd(self, *args: Any) -> bool:
        """Return whether the user of the script may run a command."""
        argv: Any = self._arguments(args)
        if argv is None:
            raise self._interpreter.fault(self._bad_arguments(not args))
        entry: Command | None = self.engine.lookup(argv)
        if entry is None or (entry.subcommands is not None and len(argv) > 1):
            name = b"server" if self._is_valkey() else b"redis"
            raise self._interpreter.fault(b"ERR Invalid command passed to " + name + b".acl_check_cmd()")
        if not entry.accepts(len(argv)) and self.engine.settings.compat.knows(74):
            raise self._interpreter.fault(b"ERR Wrong number of args for redis.acl_check_cmd()")
        return bool(self.engine.acl.denial(self.session, entry, argv) == (0, 0))

    def double(self, value: float) -> bytes:
        """Return the text of a double in a reply."""
        return reply_text(float(value), not self.engine.settings.compat.knows(72))

    def count_error(self, text: bytes) -> None:
        """Count an error reply of a script under its first word."""
        compat = self.engine.settings.compat
        self.engine.stats.count_error(text.decode("utf-8", "surrogateescape"), compat, True)

    # -- long scripts --------------------------------------------------------------------------------

    def interrupt(self) -> bytes | None:
        """Let other clients be served after busy-reply-threshold; return the error of a script that was killed."""
        engine: Engine = self.engine
        if not self.running:
            return None
        self._interpreter.check_memory()
        if cython.compiled:
            with cython.nogil:  # let other threads of Python run
                pass
        threshold = engine.settings.busy_reply_threshold
        if not self.killed and threshold > 0:
            if not self.busy and engine.clock.uptime_ms() - self.started_ms >= threshold:
                self._enter_busy()
            if self.busy and engine.services.serve_while_busy(self.caller):
                self.killed = True  # SHUTDOWN NOSAVE: as if the process had ended here
                engine.propagation.end_run()
                del engine.propagation.pending[:]
        if not self.wrote:
            checkpoint()
        if not self.killed:
            return None
        kind = b"FUNCTION" if self.function else b"SCRIPT"
        if not self._announced:
            self._announced = True
            engine.services.log_line(f"Lua script killed by user with {kind.decode()} KILL.", "notice")
        return b"ERR Script killed by user with " + kind + b" KILL" + (b"." if self._is_valkey() else b"...")

    def _enter_busy(self) -> None:
        self.busy = True
        self.engine.busy = True
        kind = "FUNCTION" if self.function else "SCRIPT"
        elapsed = self.engine.clock.uptime_ms() - self.started_ms
        self.engine.services.log_line(
            f"Slow script detected: still in execution after {elapsed} milliseconds. You can try killing the script "
            f"using the {kind} KILL command. Script name is: {self.name.decode('utf-8', 'surrogateescape')}."
        )


@cython.cfunc
@cython.exceptval(-2, check=False)
def _small_number(text: bytes) -> cython.Py_ssize_t:
    """Return the number of keys that a word of up to four digits gives, -1 for any other word."""
    size: cython.Py_ssize_t = len(text)
    value: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    if size == 0 or size > 4 or (size > 1 and text[0] == 48):
        return -1
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return value


def _number_of(value: object) -> float | None:
    """Return a number, or a string that Lua converts to one (lua_tonumber); else None."""
    if type(value) is int or type(value) is float:
        return value
    if type(value) is bytes:
        try:
            return float(int(value, 16)) if value.strip().lower().startswith(b"0x") else float(value)
        except ValueError:
            return None
    return None


def _integer_of(value: object) -> int:
    """Return the number that C gets when it converts Lua's value to an int; 0 if that is no number."""
    number = _number_of(value)
    return int(number) if number is not None and -(2.0**31) <= number < 2.0**31 else 0 if number is None else -(2**31)


def _lua_number(value: float) -> bytes:
    """Return a number as Lua converts it to a string (LUAI_NUMFFORMAT)."""
    return b"%.14g" % value
