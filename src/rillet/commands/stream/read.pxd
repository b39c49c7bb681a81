cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.read_blocking cimport ReadCommand
from rillet.commands.stream.read_reply cimport ReadReply
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.stream cimport Stream


@cython.final
cdef class XreadReply(ReadReply):
    pass
