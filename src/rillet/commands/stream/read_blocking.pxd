cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.read_arguments cimport ReadArguments
from rillet.commands.stream.read_reply cimport ReadReply
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.group cimport Group
from rillet.types.stream.id cimport less
from rillet.types.stream.value cimport Stream


@cython.final
cdef class BlockedRead:
    cdef ReadArguments arguments
    cdef ReadReply reply
    cdef bint _serve_again(self, Session session) except -1
    cdef bint _serve_key(self, Session session, bytes key, object value) except -1

cdef bint block_or_reply_null(Session session, ReadReply reply) except -1
