cimport cython
from rillet.protocol.command_parser cimport CommandParser
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.fast_path cimport FastPath
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class PingFastPath(FastPath):
    pass
