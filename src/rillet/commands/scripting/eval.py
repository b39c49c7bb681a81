"""EVAL, EVALSHA and their read-only forms (Redis: eval.c).

Nothing is logged for these commands: the commands that a script calls are logged instead, between MULTI and EXEC if
there is more than one (rillet.runtime.propagation).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import integer
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.errors import CommandError, NoScript
from rillet.runtime.engine import Engine
from rillet.runtime.pause import SCRIPT_WRITES
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.scripting import flags as flag
from rillet.scripting.calls import ScriptCalls
from rillet.scripting.scripts import scripts_of

_FLAGS = "noscript stale skip_monitor no_mandatory_keys movablekeys"
_COMPLEXITY = "Depends on the script that is executed."
_DIGITS = 40


def _key_count(argv: list[bytes]) -> int:
    """Return the number of keys; CommandError if it does not fit the number of words."""
    count = integer(argv[2])
    if count > len(argv) - 3:
        raise CommandError("Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("Number of keys can't be negative")
    return count


def _unknown(session: Session) -> NoScript:
    hint = "" if session.engine.settings.compat.valkey else " Please use EVAL."
    return NoScript("No matching script." + hint)


def _eval(session: Session, argv: list[bytes], read_only: bool) -> None:
    count = _key_count(argv)
    scripts = scripts_of(session.engine)
    script = scripts.load(argv[1], evictable=True)
    scripts.run(session, script, count, argv, read_only)


@cython.cfunc
def _evalsha(session: Session, argv: list[bytes], read_only: cython.bint) -> cython.bint:
    engine: Engine = session.engine  # type: ignore[assignment]
    scripts: Any = engine.scripts
    if scripts is not None:
        calls: ScriptCalls = scripts.calls
        if calls.run_cached(session, argv, read_only):
            return True
    if len(argv[1]) != _DIGITS:
        raise _unknown(session)
    count = _key_count(argv)
    scripts = scripts_of(engine)
    script = scripts.find(argv[1])
    if script is None:
        raise _unknown(session)
    scripts.run(session, script, count, argv, read_only)
    return True


@command("eval", arity=-3, flags=f"{_FLAGS} may_replicate", group="scripting", since="2.6.0", complexity=_COMPLEXITY,
         syntax="script numkeys [key [key ...]] [arg [arg ...]]", get_keys=KeysAfterNumber(2))
def eval_(session: Session, argv: list[bytes]) -> None:
    """Run a Lua script."""
    _eval(session, argv, False)


@command("evalsha", arity=-3, flags=f"{_FLAGS} may_replicate", group="scripting", since="2.6.0",
         complexity=_COMPLEXITY, syntax="sha1 numkeys [key [key ...]] [arg [arg ...]]", get_keys=KeysAfterNumber(2))
def evalsha(session: Session, argv: list[bytes]) -> None:
    """Run a cached Lua script, named by the SHA1 of its source."""
    _evalsha(session, argv, False)


@command("eval_ro", arity=-3, flags=f"{_FLAGS} readonly", group="scripting", since="7.0.0", complexity=_COMPLEXITY,
         syntax="script numkeys [key [key ...]] [arg [arg ...]]", get_keys=KeysAfterNumber(2))
def eval_ro(session: Session, argv: list[bytes]) -> None:
    """Run a Lua script that may not write."""
    _eval(session, argv, True)


@command("evalsha_ro", arity=-3, flags=f"{_FLAGS} readonly", group="scripting", since="7.0.0",
         complexity=_COMPLEXITY, syntax="sha1 numkeys [key [key ...]] [arg [arg ...]]", get_keys=KeysAfterNumber(2))
def evalsha_ro(session: Session, argv: list[bytes]) -> None:
    """Run a cached Lua script that may not write, named by the SHA1 of its source."""
    _evalsha(session, argv, True)


def _writes(flags: int) -> bool | None:
    return None if flags & flag.COMPAT_MODE else not flags & flag.NO_WRITES


def _source_writes(session: Session, argv: list[bytes]) -> bool | None:
    """Return whether the script of an EVAL may write, None if it declares nothing (evalGetCommandFlags)."""
    try:
        return _writes(flag.parse(argv[1], session.engine.settings.compat.valkey).flags)
    except CommandError:
        return None


def _cached_writes(session: Session, argv: list[bytes]) -> bool | None:
    """Return whether the script of an EVALSHA may write, None if it declares nothing or is unknown."""
    script = None if session.engine.scripts is None else session.engine.scripts.find(argv[1])
    return None if script is None else _writes(script.flags)


SCRIPT_WRITES.update(eval=_source_writes, eval_ro=_source_writes, evalsha=_cached_writes, evalsha_ro=_cached_writes)
