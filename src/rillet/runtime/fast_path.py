"""Shortcuts: a command's way past the list of its words, for calls that lie whole and plain in what a client sent.

    bytes ── CommandParser.next ──► argv ──► Engine.call ──► handler(session, argv)       every command
          └─ CommandParser.scan ──► Words ─► Shortcut.run(session, parser, words, ...)    a run of plain calls

A command may have a shortcut beside its handler (`Command.shortcut`). The engine offers it the words of a call where
nothing is special: no transaction, no events asked for, nobody held back, and a log that is fed
(rillet.protocol.propagation_buffer)
or none. The shortcut either does exactly what
the handler would have done, and goes on with the next call of the same name, or leaves the call alone: nothing has
changed then, and the engine takes the way of every command. Errors are left alone, too, so that there is one place
that words them.

What a call changed goes to the feed as the client sent it, with what was left open put in (the ID for `*`): the bytes
are those that the list of words would have given.

What a run of calls leaves in the session (`dirty`) is their sum, and the engine counts and times them together. Clients
that wait for a key are served between two calls: a run ends as soon as one of them is.

The worth: an XADD of five fields costs a third less (docs/design has the figures).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.protocol.command_parser import CommandParser
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans


@cython.cclass
class FastPath:
    """The shortcut of one command, in one engine or several."""

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
        """Run the call in `words` and those of the same name behind it; return how many were run.

        What they change is fed to `feed`, if there is one.

        Ends at the first that is not plain, when clients are to be served, or beyond `limit` bytes of replies. The
        parser is stepped over what was run, no further.
        """
        raise NotImplementedError
