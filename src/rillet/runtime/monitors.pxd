cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.integer_text cimport put_decimal
from rillet.structs.memory cimport copy_part

@cython.final
cdef class Monitors:
    cdef object _engine
    cdef Clock _clock
    cdef ReplyWriter _line
    cdef long long _client
    cdef bytes _address
    cdef readonly list sessions
    cdef bint feed(self, Session session, ArgumentSpans words, Session current)
    cdef bint _put_word(self, ArgumentSpans words, Py_ssize_t index)
