"""FUNCTION and FCALL: libraries of functions in Lua (Redis: functions.c).

The commands that change libraries are logged as they are: FUNCTION LOAD with the source, FUNCTION RESTORE with the
payload. Nothing is logged for FCALL; the commands that a function calls are logged instead, as those of a script.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, subcommand_error, text
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.help_texts import write_help
from rillet.commands.scripting.replies import check_flush
from rillet.commands.scripting.script import kill
from rillet.errors import CommandError
from rillet.runtime.pause import SCRIPT_WRITES
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.scripting import flags as flag
from rillet.scripting.functions import ENGINE, Function, Functions
from rillet.scripting.scripts import scripts_of
from rillet.structs.glob import matches

_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys"
_CALL_COMPLEXITY = "Depends on the function that is executed."
_CALL_SYNTAX = "function numkeys [key [key ...]] [arg [arg ...]]"
_FLAG_NAMES = sorted(flag.FLAGS.items(), key=lambda item: item[1])


def functions_of(session: Session) -> Functions:
    """Return the functions of the session's engine, with those that the last RDB file brought."""
    functions = scripts_of(session.engine).functions
    functions.adopt()
    return functions


# -- FCALL -----------------------------------------------------------------------------------------------


def _call(session: Session, argv: list[bytes], read_only: bool) -> None:
    functions = functions_of(session)
    function = functions.current.functions.get(argv[1].lower())
    if function is None:
        raise CommandError("Function not found")
    try:
        count = integer(argv[2])
    except CommandError:
        raise CommandError("Bad number of keys provided") from None
    if count > len(argv) - 3:
        raise CommandError("Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("Number of keys can't be negative")
    functions.call(session, argv, count, function, read_only)


@command("fcall", arity=-3, flags=f"{_FLAGS} may_replicate", group="scripting", since="7.0.0",
         complexity=_CALL_COMPLEXITY, syntax=_CALL_SYNTAX, get_keys=KeysAfterNumber(2))
def fcall(session: Session, argv: list[bytes]) -> None:
    """Invokes a function."""
    _call(session, argv, False)


@command("fcall_ro", arity=-3, flags=f"{_FLAGS} readonly", group="scripting", since="7.0.0",
         complexity=_CALL_COMPLEXITY, syntax=_CALL_SYNTAX, get_keys=KeysAfterNumber(2))
def fcall_ro(session: Session, argv: list[bytes]) -> None:
    """Invokes a read-only function."""
    _call(session, argv, True)


def _function_writes(session: Session, argv: list[bytes]) -> bool | None:
    """Return whether the function of an FCALL may write, None if there is no such function (fcallGetCommandFlags)."""
    scripts = session.engine.scripts
    functions = None if scripts is None else scripts.functions
    function = None if functions is None else functions.current.functions.get(argv[1])
    return None if function is None else not function.flags & flag.NO_WRITES


SCRIPT_WRITES.update(fcall=_function_writes, fcall_ro=_function_writes)


# -- FUNCTION --------------------------------------------------------------------------------------------


@command("function|load", arity=-3, flags="noscript write denyoom", group="scripting", since="7.0.0",
         complexity="O(1) (considering compilation time is redundant)", syntax="[REPLACE] function-code")
def function_load(session: Session, argv: list[bytes]) -> None:
    """Creates a library."""
    replace = False
    for word in argv[2:-1]:
        if word.lower() != b"replace":
            raise CommandError(f"Unknown option given: {text(word)}")
        replace = True
    functions = scripts_of(session.engine).functions
    name = functions.load(argv[-1], replace=replace, timeout=not session.state & TRUSTED)
    session.dirty += 1
    session.out.bulk(name)


@command("function|delete", arity=3, flags="noscript write", group="scripting", since="7.0.0", complexity="O(1)",
         syntax="library-name")
def function_delete(session: Session, argv: list[bytes]) -> None:
    """Deletes a library and its functions."""
    current = functions_of(session).current
    library = current.libraries.get(argv[2])
    if library is None:
        raise CommandError("Library not found")
    current.unlink(library)
    session.dirty += 1
    session.out.ok()


@command("function|flush", arity=-2, flags="noscript write", group="scripting", since="7.0.0",
         complexity="O(N) where N is the number of functions deleted", syntax="[ASYNC | SYNC]")
def function_flush(session: Session, argv: list[bytes]) -> None:
    """Deletes all libraries and functions."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    check_flush(argv, "FUNCTION FLUSH only supports SYNC|ASYNC option")
    lazy = session.engine.settings.lazyfree_lazy_user_flush if len(argv) == 2 else argv[2].lower() == b"async"
    scripts_of(session.engine).functions.clear(counted=lazy)
    session.dirty += 1  # Redis counts and logs a change even if there are no functions
    session.out.ok()


@command("function|list", arity=-2, flags="noscript", group="scripting", since="7.0.0",
         complexity="O(N) where N is the number of functions", syntax="[LIBRARYNAME library-name-pattern] [WITHCODE]")
def function_list(session: Session, argv: list[bytes]) -> None:
    """Returns information about all libraries."""
    pattern, with_code = _list_options(argv)
    libraries = list(functions_of(session).current.libraries.values())
    if pattern is not None:
        libraries = [library for library in libraries if matches(pattern, library.name, True)]
    out = session.out
    out.array(len(libraries))
    for library in libraries:
        out.map(4 if with_code else 3)
        out.bulk(b"library_name")
        out.bulk(library.name)
        out.bulk(b"engine")
        out.bulk(ENGINE)
        out.bulk(b"functions")
        out.array(len(library.functions))
        for function in library.functions.values():
            _reply_function(session, function)
        if with_code:
            out.bulk(b"library_code")
            out.bulk(library.code)


def _list_options(argv: list[bytes]) -> tuple[bytes | None, bool]:
    pattern: bytes | None = None
    with_code = False
    place = 2
    while place < len(argv):
        word = argv[place].lower()
        if word == b"withcode" and not with_code:
            with_code = True
        elif word == b"libraryname" and pattern is None:
            place += 1
            if place == len(argv):
                raise CommandError("library name argument was not given")
            pattern = argv[place]
        else:
            raise CommandError(f"Unknown argument {text(argv[place])}")
        place += 1
    return pattern, with_code


def _reply_function(session: Session, function: Function) -> None:
    out = session.out
    out.map(3)
    out.bulk(b"name")
    out.bulk(function.name)
    out.bulk(b"description")
    if function.description is None:
        out.null()
    else:
        out.bulk(function.description)
    out.bulk(b"flags")
    names = [name for name, value in _FLAG_NAMES if function.flags & value]
    out.set(len(names))
    for name in names:
        out.simple(name)


@command("function|dump", arity=2, flags="noscript", group="scripting", since="7.0.0",
         complexity="O(N) where N is the number of functions")
def function_dump(session: Session, argv: list[bytes]) -> None:
    """Dumps all libraries into a serialized binary payload."""
    session.out.bulk(functions_of(session).dump())


@command("function|restore", arity=-3, flags="noscript write denyoom", group="scripting", since="7.0.0",
         complexity="O(N) where N is the number of functions on the payload",
         syntax="serialized-value [FLUSH | APPEND | REPLACE]")
def function_restore(session: Session, argv: list[bytes]) -> None:
    """Restores all libraries from a payload."""
    if len(argv) > 4:
        raise subcommand_error(argv)
    policy = argv[3].lower() if len(argv) == 4 else b"append"
    if policy not in (b"flush", b"append", b"replace"):
        raise CommandError("Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
    scripts_of(session.engine).functions.restore(argv[2], policy)
    session.dirty += 1
    session.out.ok()


@command("function|stats", arity=2, flags="noscript allow_busy", group="scripting", since="7.0.0", complexity="O(1)")
def function_stats(session: Session, argv: list[bytes]) -> None:
    """Returns information about a function during execution."""
    engine = session.engine
    scripts = scripts_of(engine)
    calls = scripts.calls
    out = session.out
    if calls.running and not calls.function:
        raise engine.busy_error()
    if not calls.running:
        scripts.functions.adopt()
    out.map(2)
    out.bulk(b"running_script")
    if calls.running:
        out.map(3)
        out.bulk(b"name")
        out.bulk(calls.name)
        out.bulk(b"command")
        words = scripts.functions.argv
        out.array(len(words))
        out.bulks(words)
        out.bulk(b"duration_ms")
        out.integer(engine.clock.uptime_ms() - calls.started_ms)
    else:
        out.null()
    out.bulk(b"engines")
    out.map(1)
    out.bulk(ENGINE)
    out.map(2)
    current = scripts.functions.current
    out.bulk(b"libraries_count")
    out.integer(len(current.libraries))
    out.bulk(b"functions_count")
    out.integer(sum(len(library.functions) for library in current.libraries.values()))


@command("function|kill", arity=2, flags="noscript allow_busy", group="scripting", since="7.0.0", complexity="O(1)")
def function_kill(session: Session, argv: list[bytes]) -> None:
    """Terminates a function during execution."""
    kill(session, function=True)


@command("function|help", arity=2, flags="loading stale", group="scripting", since="7.0.0", complexity="O(1)")
def function_help(session: Session, argv: list[bytes]) -> None:
    """Returns helpful text about the different subcommands."""
    write_help(session, argv[0], "function")
