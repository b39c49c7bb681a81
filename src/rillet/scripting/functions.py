"""Function libraries: load, call, delete, dump and restore them (Redis: functions.c, function_lua.c).

    FUNCTION LOAD "#!lua name=l\\nredis.register_function('f', ...)"
        -> Library(name, code, {name: Function(name, callback, flags, description)})
    FCALL f 1 key arg -> callback({key}, {arg})

A library is its source text. Loading runs the text once; it calls `redis.register_function` for each function. RDB
files, FUNCTION DUMP and the log contain the text, so a library is loaded again wherever its functions are needed:

    245 code   for each library, before the keys of an RDB file; in FUNCTION DUMP, a footer as that of DUMP follows

An RDB file only leaves the records (`engine.preserved`). `Functions.adopt` loads them when a command needs functions:
programs that check or convert files run no code of theirs, and a store that uses no functions starts no interpreter.

Functions have an interpreter apart from that of scripts, as in Redis: SCRIPT FLUSH does not touch the variables of
libraries. Names of functions are unique among all libraries, in any case of letters. Names of libraries are exact.

A load must end within LOAD_TIMEOUT_MS, except for one from the log, a file or a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, Corrupt
from rillet.keyspace.lazyfree import THRESHOLD
from rillet.protocol.command_parser import split_args
from rillet.runtime.session import Session
from rillet.scripting import flags as flag
from rillet.scripting.calls import ScriptCalls
from rillet.scripting.interpreter import Interpreter
from rillet.structs.crc64 import crc64
from rillet.types.compat import NEWEST
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.rdb.value import seal_is_valid

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

LOAD_TIMEOUT_MS = 500
ENGINE = b"LUA"
OPCODE = 245
PREVIEW_OPCODE = 246
"""The record of the previews of 7.0, which contains name, engine and description beside the code."""
_FOOTER = 10
_OLDEST_RDB = 10  # of Redis 7.0, the first with functions
_ALLOWED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_RULE = " names can only contain letters, numbers, or underscores(_) and must be at least one character long"


class Function:
    """A function of a library; `callback` is its Lua function, `number` that function's number in the interpreter."""

    __slots__ = ("callback", "description", "flags", "name", "number")

    def __init__(self, name: bytes, callback: Any, flags: int, description: bytes | None) -> None:
        self.name = name
        self.callback = callback
        self.flags = flags
        self.description = description
        self.number = 0


class Library:
    """A library: its name, its source and its functions by name."""

    __slots__ = ("code", "functions", "name")

    def __init__(self, name: bytes, code: bytes) -> None:
        self.name = name
        self.code = code
        self.functions: dict[bytes, Function] = {}


class Libraries:
    """A set of libraries, and their functions by lower-case name (functionsLibCtx)."""

    __slots__ = ("functions", "libraries")

    def __init__(self) -> None:
        self.libraries: dict[bytes, Library] = {}
        self.functions: dict[bytes, Function] = {}

    def link(self, library: Library) -> None:
        """Add a library whose functions have no name of the set."""
        for name, function in library.functions.items():
            self.functions.setdefault(name.lower(), function)
        self.libraries[library.name] = library

    def unlink(self, library: Library) -> None:
        """Remove a library."""
        for name in library.functions:
            self.functions.pop(name.lower(), None)
        del self.libraries[library.name]

    def collision(self, functions: dict[bytes, Function]) -> bytes | None:
        """Return the name of a function that the set already has, or None."""
        for function in functions.values():
            if function.name.lower() in self.functions:
                return function.name
        return None


class Functions:
    """The function libraries of an engine, and the interpreter that runs them."""

    def __init__(self, engine: Engine, calls: ScriptCalls) -> None:
        self.engine = engine
        self.calls = calls
        self.current = Libraries()
        self.interpreter: Interpreter | None = None
        # The words of the command whose function runs.
        self.argv: list[bytes] = []
        # The library that is being loaded, and when its time is over; -1: never.
        self._loading: Library | None = None
        self._deadline = -1
        # The functions that it registered; Valkey adds them to the library when its source has run.
        self._registered: list[Function] = []

    # -- the interpreter ---------------------------------------------------------------------------------

    def ready(self) -> Interpreter:
        """Return the interpreter; create it if there is none for the current `compat`, and load the libraries in it."""
        settings = self.engine.settings
        interpreter = self.interpreter
        if interpreter is not None and interpreter.compat is settings.compat:
            if interpreter.limit_set != settings.lua_memory_limit:
                interpreter.take_limit(settings.lua_memory_limit)
            return interpreter
        natives = {**self.calls.functions(), b"register": self._register, b"interrupt": self._interrupt}
        interpreter = self.interpreter = Interpreter(
                settings.compat, settings.lua_memory_limit, natives, self.calls, settings.lua_enable_deprecated_api
            )
        old = list(self.current.libraries.values())
        for library in old:
            self.current.unlink(library)
        for library in old:
            self.create(self.current, library.code, replace=False, timeout=False)
        return interpreter

    def memory(self) -> int:
        """Return the bytes of the Lua heap that contains the functions."""
        return 0 if self.interpreter is None else self.interpreter.memory()

    def overhead(self) -> int:
        """Return the bytes of the libraries outside the Lua heap: source texts, records (functionsMemoryOverhead)."""
        return sum(len(library.code) + 200 for library in self.current.libraries.values())

    def _interrupt(self) -> bytes | None:
        """Return the error of a load that takes too long, or of a function that was killed."""
        if self._loading is None:
            return self.calls.interrupt()
        late = self._deadline >= 0 and self.engine.clock.uptime_ms() > self._deadline
        return b"ERR FUNCTION LOAD timeout" if late else None

    # -- loading -----------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Load the libraries that an RDB file left as records; CommandError if one is malformed."""
        preserved = self.engine.preserved
        if preserved is None or not preserved.functions:
            return
        for code in kept_codes(self.engine):
            try:
                self.create(self.current, code, replace=True, timeout=False)
            except CommandError as error:
                raise CommandError(f"Failed loading library, {str(error).removeprefix('ERR ')}") from error
        preserved.functions.clear()

    def load(self, code: bytes, *, replace: bool, timeout: bool) -> bytes:
        """Load a library and return its name; CommandError (FUNCTION LOAD)."""
        self.adopt()
        return self.create(self.current, code, replace=replace, timeout=timeout)

    def create(self, into: Libraries, code: bytes, *, replace: bool, timeout: bool) -> bytes:
        """Load a library into a set and return its name; on CommandError the set stays as it was."""
        name, engine, source = metadata(code, self.engine.settings.compat.valkey)
        if not _is_name(name):
            raise CommandError("Library" + _RULE)
        if engine.lower() != ENGINE.lower():
            raise CommandError(f"Engine '{_text(engine)}' not found")
        old = into.libraries.get(name)
        if old is not None and not replace:
            raise CommandError(f"Library '{_text(name)}' already exists")
        interpreter = self.ready()
        old = into.libraries.get(name)  # `ready` may have loaded it again
        library = Library(name, code)
        if old is not None:
            into.unlink(old)
        try:
            self._run(interpreter, library, source, timeout)
            if not library.functions:
                raise CommandError("No functions registered")
            collision = into.collision(library.functions)
            if collision is not None:
                raise CommandError(f"Function {_text(collision)} already exists")
        except BaseException:
            if old is not None:
                into.link(old)
            raise
        into.link(library)
        return name

    def _run(self, interpreter: Interpreter, library: Library, source: bytes, timeout: bool) -> None:
        """Run the source of a library, which registers functions (luaEngineCreate)."""
        interpreter.collect(2 * len(source))
        self._loading = library
        self._registered = []
        self._deadline = self.engine.clock.uptime_ms() + LOAD_TIMEOUT_MS if timeout else -1
        self.calls.attach(interpreter)
        try:
            problem = interpreter.load_library(source)
        except interpreter.error as error:
            interpreter.take_limit(interpreter.limit_set)
            raise CommandError(f"Error registering functions: {str(error)[:100]}") from error
        finally:
            self._loading = None
            self._detach()
        if problem is not None:
            stage, message = problem
            step = "compiling function" if stage == 1 else "registering functions"
            raise CommandError(f"Error {step}: " + _text(message.split(b"\0")[0]))
        for function in self._registered:
            self._put(library, function, "Function")

    def _detach(self) -> None:
        scripts = self.engine.scripts
        self.calls.attach(None if scripts is None else scripts.interpreter)

    def _register(self, *args: Any) -> None:
        """Add a function to the library that is being loaded (luaRegisterFunction)."""
        try:
            self._add(args)
        except CommandError as error:
            assert self.interpreter is not None
            raise self.interpreter.fault(str(error).encode("utf-8", "surrogateescape")) from None

    def _add(self, args: tuple[Any, ...]) -> None:
        library = self._loading
        name = ("server" if self.engine.settings.compat.valkey else "redis") + ".register_function"
        if library is None:
            raise CommandError(f"{name} can only be called on FUNCTION LOAD command")
        if not 1 <= len(args) <= 2:
            raise CommandError(f"wrong number of arguments to {name}")
        function = self._named(args[0], name) if len(args) == 1 else self._positional(args, name)
        if self.engine.settings.compat.valkey:
            self._registered.append(function)
        else:
            self._put(library, function, "Library")

    @staticmethod
    def _put(library: Library, function: Function, kind: str) -> None:
        """Add a function to a library, if its name is valid and new (functionLibCreateFunction)."""
        if not _is_name(function.name):
            raise CommandError(kind + _RULE)
        if function.name in library.functions:
            raise CommandError("Function already exists in the library")
        library.functions[function.name] = function

    def _positional(self, args: tuple[Any, ...], api: str) -> Function:
        name = self._string(args[0])
        if name is None:
            raise CommandError(f"first argument to {api} must be a string")
        if self._type(args[1]) != "function":
            raise CommandError(f"second argument to {api} must be a function")
        return Function(name, args[1], 0, None)

    def _named(self, table: Any, api: str) -> Function:
        """Return the function that a table describes; its fields are checked in the order of the table."""
        if self._type(table) != "table":
            raise CommandError(f"calling {api} with a single argument is only applicable to Lua table "
                               "(representing named arguments).")  # fmt: skip
        name = description = callback = None
        flags = 0
        for key, value in table.items():
            word = self._string(key)
            if word is None:
                raise CommandError(f"named argument key given to {api} is not a string")
            word = word.split(b"\0")[0].lower()
            if word == b"function_name":
                name = self._string(value)
                if name is None:
                    raise CommandError(f"function_name argument given to {api} must be a string")
            elif word == b"description":
                description = self._string(value)
                if description is None:
                    raise CommandError(f"description argument given to {api} must be a string")
            elif word == b"callback":
                if self._type(value) != "function":
                    raise CommandError(f"callback argument given to {api} must be a function")
                callback = value
            elif word == b"flags":
                if self._type(value) != "table":
                    raise CommandError(f"flags argument to {api} must be a table representing function flags")
                flags = self._flags(value)
            else:
                raise CommandError(f"unknown argument given to {api}")
        if name is None:
            raise CommandError(f"{api} must get a function name argument")
        if callback is None:
            raise CommandError(f"{api} must get a callback argument")
        return Function(name, callback, flags, description)

    def _flags(self, table: Any) -> int:
        flags = 0
        place = 1
        while (value := table[place]) is not None:
            word = self._string(value)
            known = None if word is None else flag.FLAGS.get(word.split(b"\0")[0].lower())
            if known is None:
                raise CommandError("unknown flag given")
            flags |= known
            place += 1
        return flags

    def _type(self, value: Any) -> str | None:
        """Return the Lua type of a value that is not a string, a number or a boolean."""
        assert self.interpreter is not None
        kind: str | None = self.interpreter.type_of(value)
        return kind

    @staticmethod
    def _string(value: Any) -> bytes | None:
        """Return a string, or a number as Lua converts it to one; None for any other value (luaGetStringSds)."""
        if type(value) is bytes:
            return value
        if type(value) is int or type(value) is float:
            return f"{value:.14g}".encode()
        return None

    # -- calling -----------------------------------------------------------------------------------------

    def call(self, session: Session, argv: list[bytes], key_count: int, function: Function, read_only: bool) -> None:
        """Run a function for a session, which gets its reply (FCALL). Keys and values begin at argv[3]."""
        scripts = self.engine.scripts
        scripts.check(session, function.flags, read_only)
        interpreter = self.ready()
        calls = self.calls
        calls.attach(interpreter)
        calls.function = True
        self.argv = argv
        try:
            if interpreter.stack.native:
                if not function.number:
                    function.number = interpreter.hold(function.callback)
                calls.run(session, function.name, function.flags, read_only, function.number, True, argv, key_count)
            else:
                self._call_with_lupa(interpreter, session, argv[3:], key_count, function, read_only)
        finally:
            calls.function = False
            self.argv = []
            self._detach()

    def _call_with_lupa(
        self, interpreter: Interpreter, session: Session, words: list[bytes], key_count: int, function: Function,
        read_only: bool,
    ) -> None:  # fmt: skip
        calls = self.calls
        interpreter.collect(sum(map(len, words)))
        table = interpreter.lua.table_from
        keys, args = table(words[:key_count]), table(words[key_count:])
        calls.start(session, function.name, function.flags, read_only)
        try:
            value = interpreter.run_function(function.callback, session.out.resp, keys, args)
        except interpreter.error as error:
            interpreter.restore_limit()
            raise CommandError(f"Error running script {_text(function.name)}, {str(error)[:100]}") from error
        finally:
            calls.end()
        calls.reply(session, value)

    # -- all libraries -----------------------------------------------------------------------------------

    def clear(self, *, counted: bool = False) -> None:
        """Delete all libraries, also those that wait to be adopted (FUNCTION FLUSH).

        Lua's memory is free at once since 7.4; before, when Lua collects what the libraries held. `counted`: count the
        functions, and since 7.4 the interpreter, as lazily freed objects if they are many (freeFunctionsAsync).
        """
        compat = self.engine.settings.compat
        anew = compat.knows(74) or compat.valkey
        number = len(self.current.functions)
        if counted and number > THRESHOLD:
            self.engine.lazyfree.freed += number + int(anew and not compat.valkey)
        self.current = Libraries()
        if anew:
            self.interpreter = None
        if self.engine.preserved is not None:
            self.engine.preserved.functions.clear()

    def dump(self) -> bytes:
        """Return the libraries as the payload of FUNCTION DUMP. O(bytes)"""
        settings = self.engine.settings
        out = RdbWriter(settings.rdbcompression)
        for library in self.current.libraries.values():
            out.raw(library_record(library.code, settings.rdbcompression))
        oldest = settings.compat is NEWEST and settings.dump_format != "native"
        out.raw((_OLDEST_RDB if oldest else settings.compat.rdb_version).to_bytes(2, "little"))
        out.raw(crc64(bytes(out.out)).to_bytes(8, "little"))
        return bytes(out.out)

    def restore(self, payload: bytes, policy: bytes) -> None:
        """Load the libraries of a payload. The policy is `flush`, `append` or `replace`; CommandError."""
        self.adopt()
        settings = self.engine.settings
        if not seal_is_valid(payload, settings.skip_checksum_validation, settings.compat.knows(86),
                             settings.rdb_version_check == "relaxed"):
            raise CommandError("DUMP payload version or checksum are wrong")
        self.ready()
        loaded = Libraries()
        reader = RdbReader(payload, 0, len(payload) - _FOOTER)
        while not reader.is_over():
            self.create(loaded, self._record(reader), replace=False, timeout=False)
        if policy == b"flush":
            self.current = loaded
        else:
            self._join(loaded, replace=policy == b"replace")

    def _record(self, reader: RdbReader) -> bytes:
        """Read the code of a library from a payload."""
        kind = reader.byte()
        compat = self.engine.settings.compat
        if kind == PREVIEW_OPCODE and (compat.knows(72) or compat.valkey):
            raise CommandError("Pre-GA function format not supported")
        if kind not in (OPCODE, PREVIEW_OPCODE):
            raise CommandError("given type is not a function")
        try:
            return reader.string() if kind == OPCODE else preview_code(reader)
        except (Corrupt, IndexError, OverflowError, MemoryError):
            raise CommandError("Failed loading library payload") from None

    def _join(self, loaded: Libraries, *, replace: bool) -> None:
        """Add the libraries; if one has a name in use, replace it or change nothing (libraryJoin)."""
        current = self.current
        replaced = []
        for name in loaded.libraries:
            old = current.libraries.get(name)
            if old is not None:
                if not replace:
                    raise CommandError(f"Library {_text(name)} already exists")
                replaced.append(old)
        for library in replaced:
            current.unlink(library)
        collision = current.collision(loaded.functions)
        if collision is not None:
            for library in replaced:
                current.link(library)
            raise CommandError(f"Function {_text(collision)} already exists")
        for library in loaded.libraries.values():
            current.link(library)


def metadata(code: bytes, valkey: bool) -> tuple[bytes, bytes, bytes]:
    """Return the library's name, its engine and the source behind the first line (functionExtractLibMetaData)."""
    if not code.startswith(b"#!"):
        raise CommandError("Missing library metadata")
    end = code.find(b"\n")
    words = split_args(code[:end], valkey) if end >= 0 and b"\0" not in code[:end] else None
    if not words:
        raise CommandError("Invalid library metadata")
    name: bytes | None = None
    for word in words[1:]:
        if word[:5].lower() != b"name=":
            raise CommandError(f"Invalid metadata value given: {_text(word)}")
        if name is not None:
            raise CommandError("Invalid metadata value, name argument was given multiple times")
        name = word[5:]
    if name is None:
        raise CommandError("Library name was not given")
    return name, words[0][2:], code[end:]


def preview_code(reader: RdbReader) -> bytes:
    """Read a library of the 7.0 previews after its opcode; return its code in the final form (rdbFunctionLoad)."""
    name, engine = reader.string(), reader.string()
    if reader.length():
        reader.string()  # the library's description, which the final form lacks
    return b"#!%b name=%b\n%b" % (engine, name, reader.string())


def kept_codes(engine: Engine) -> list[bytes]:
    """Return the codes of the records that an RDB file left and that no command needed yet."""
    preserved = engine.preserved
    return [] if preserved is None else [RdbReader(raw, 1, len(raw)).string() for raw in preserved.functions]


def library_codes(engine: Engine) -> list[bytes]:
    """Return the codes of all libraries, loaded or kept, for a file. A kept one replaces a loaded one of its name."""
    return list(_codes_by_name(engine).values())


def library_names(engine: Engine) -> list[bytes]:
    """Return the names of all libraries, loaded or kept."""
    return list(_codes_by_name(engine))


def _codes_by_name(engine: Engine) -> dict[bytes, bytes]:
    scripts = engine.scripts
    codes = {} if scripts is None else {name: one.code for name, one in scripts.functions.current.libraries.items()}
    for code in kept_codes(engine):
        codes[library_name(code, engine.settings.compat.valkey)] = code
    return codes


def library_name(code: bytes, valkey: bool = False) -> bytes:
    """Return the name of a library; its code if a damaged file left no valid first line."""
    try:
        return metadata(code, valkey)[0]
    except CommandError:
        return code


def payload_codes(payload: bytes) -> list[bytes]:
    """Return the codes of the libraries in a valid payload of FUNCTION DUMP."""
    reader = RdbReader(payload, 0, len(payload) - _FOOTER)
    codes = []
    while not reader.is_over():
        codes.append(reader.string() if reader.byte() == OPCODE else preview_code(reader))
    return codes


def library_record(code: bytes, compressed: bool = False) -> bytes:
    """Return the record of a library in RDB files and payloads: the opcode and the code."""
    out = RdbWriter(compressed)
    out.byte(OPCODE)
    out.string(code)
    return bytes(out.out)


def forget_libraries(engine: Engine) -> None:
    """Delete all libraries of an engine, before its files are loaded again."""
    if engine.scripts is not None:
        engine.scripts.functions.clear()
    elif engine.preserved is not None:
        engine.preserved.functions.clear()


def _is_name(name: bytes) -> bool:
    return bool(name) and _ALLOWED.issuperset(name)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
