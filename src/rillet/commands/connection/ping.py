"""PING (Redis: server.c, pingCommand)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import arity_error
from rillet.commands.connection import command
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import session_state
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

_SUBSCRIBED = cython.declare(cython.int, session_state.SUBSCRIBED)


@cython.final
@cython.cclass
class Ping(Implementation):
    """PING; a client of RESP2 that subscribes to channels gets a message."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply PONG, or with the message."""
        out: ReplyWriter = session.out
        if words.count > 2:
            raise arity_error("ping")
        if session.state & _SUBSCRIBED and out.resp == 2:
            out.array(2)
            out.bulk(b"pong")
            return out.bulk(words.get(1) if words.count == 2 else b"")
        if words.count == 1:
            return out.simple(b"PONG")
        if cython.compiled:
            return out.bulk_span(words.at[1], words.size[1])
        return out.bulk(bytes(words.at[1]))


command("ping", arity=-1, flags="fast", since="1.0.0", syntax="[message]", complexity="O(1)",
        summary="Reply PONG, or with the message.")(Ping)
