"""Fast paths: run calls from the client's buffer without creating a list of their arguments.

    bytes -> CommandParser.next -> argv -> Engine.call -> handler(session, argv)             every command
          -> CommandParser.scan -> ArgumentSpans -> FastPath.run(session, parser, words)     consecutive plain calls

A declaration may name a fast path beside its handler (`Command.shortcut`). The engine tries the fast path if nothing is
unusual: no transaction, no keyspace events, no pause, and either no log or a log with a propagation buffer. The fast
path does exactly what the handler would do, and continues with the next calls of the same command. A call with other
options, or that would be an error, is left to the handler before any data is changed. So each error message is in one
place.

A change is appended to the propagation buffer as the client sent it, with the generated parts filled in (the ID for
`*`); the bytes equal those of the handler. `session.dirty` is the sum of all calls, and the engine counts and times
them as a whole. A fast path returns when a blocked client has to be served.

An XADD of five fields takes a third less time (docs/design has the measurements).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.protocol.command_parser import CommandParser
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans


@cython.cclass
class FastPath:
    """The fast path of one command.

    ran: the number of calls that `run` has begun; after an exception, the last one of them failed.
    """

    __slots__ = ("ran",)
    ran: cython.Py_ssize_t

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(
        self,
        session: Session,
        parser: CommandParser,
        words: ArgumentSpans,
        feed: PropagationBuffer | None,
        limit: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Run the call in `words` and the following calls of the same command; return their number.

        Changes are appended to `feed`, unless `feed` is None. Return at the first call that needs the handler, when
        blocked clients have to be served, or after `limit` bytes of replies. The parser is then after the last call.
        """
        raise NotImplementedError
