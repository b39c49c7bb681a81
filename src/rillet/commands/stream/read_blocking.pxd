cimport cython
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.commands.stream.read_reply cimport ReadReply
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.group cimport Group
from rillet.types.stream.id cimport less
from rillet.types.stream.stream cimport Stream


@cython.final
cdef class BlockedRead:
    cdef list[bytes] argv
    cdef ReadReply reply
    cdef bint _serve_key(self, Session session, ArgumentSpans words, bytes key, object value)

@cython.final
cdef class ReadCommand(Implementation):
    cdef object _kind
    cdef ReadReply _reply
    cdef bint _block(self, Session session, ArgumentSpans words, ReadReply reply)
