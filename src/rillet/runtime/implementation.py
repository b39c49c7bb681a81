"""The implementation of a command: the one way in which it runs, whoever calls it.

    a pipeline, MULTI and EXEC, a script, a log, a master, a module, the store
                 |
    ArgumentSpans -> Implementation.run(session, words) -> one operation of a type, the reply, the effects

`run` replies in `session.out`, reports its effects (runtime/session.py), and raises CommandError for an error reply. It
knows nothing of the situation in which it runs: the engine admits the command before (runtime/admission.py) and acts on
its effects afterwards.

An implementation that gains nothing from spans is a function of the session and the list of arguments:

    @command("xlen", arity=2, ...)
    def xlen(session: Session, argv: list[bytes]) -> None: ...

Others are classes. They run consecutive calls of a pipeline one after the other (`on_spans`); the engine reads the
clock once for these calls.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans


@cython.cclass
class Implementation:
    """The implementation of one command; of this class itself, if it takes a list.

    handler: the function of the session and the list of arguments. on_spans: calls may follow one another unmeasured.
    """

    __slots__ = ("command", "handler", "on_spans")
    command: public[Any]  # the declaration (runtime/registry.py)
    handler: public[Any]
    on_spans: public[cython.bint]

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Run one call."""
        return self.run_list(session, words)

    @cython.cfunc
    def run_list(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Run one call with the handler."""
        argv: list[bytes] = words.to_list()
        session.argv = argv
        self.handler(session, argv)
        return True


def on_list(handler: Any) -> Implementation:
    """Return the implementation of a command that takes a list."""
    found = Implementation()
    found.handler = handler
    found.on_spans = False
    return found
