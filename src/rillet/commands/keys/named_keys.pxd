cimport cython
from libc.string cimport memcpy
from rillet.commands.hash.read cimport write_field
from rillet.commands.string.values cimport StringCommand
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter, put_digits
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport parse_digits

@cython.final
cdef class NamedKeys(StringCommand):
    cdef bytearray _room
    cdef ArgumentSpans _words
    cdef bint _put_name(self, bytes prefix, object element, bytes postfix)
    cdef int find_text(self, Database db, bytes prefix, object element, bytes postfix) except -3
    cdef object text_or_number(self)
    cdef bint write_text(self, ReplyWriter out)
    cdef bint write_field(self, Session session, bytes prefix, object element, bytes postfix, bytes field)
