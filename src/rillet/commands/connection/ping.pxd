cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Ping(Implementation):
    pass
