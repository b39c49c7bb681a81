cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.range cimport EntryWriter
from rillet.commands.stream.read_arguments cimport ReadArguments
from rillet.commands.stream.read_blocking cimport block_or_reply_null
from rillet.commands.stream.read_reply cimport ReadReply, entries_after, has_entries_after
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.iterator cimport StreamIterator
from rillet.types.stream.value cimport Stream


@cython.final
cdef class XreadReply(ReadReply):
    cdef bint _write_pair(self, ReplyWriter out, Stream stream, Py_ssize_t index, long long count) except -1
