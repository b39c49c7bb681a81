cimport cython
from libc.string cimport memcmp, memcpy

from rillet.commands.string.values cimport form_of_word, write_string
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport hash_bytes
from rillet.types.string cimport String

@cython.final
cdef class GetFastPath(Implementation):
    cdef bint _get(self, Database db, ReplyWriter out, ArgumentSpans words) except -1

@cython.final
cdef class SetFastPath(Implementation):
    cdef bytearray _rest
    cdef int _meets(self, Session session, Database db, ArgumentSpans words, unsigned int h) except -2
    cdef bint _set(self, Session session, Database db, ArgumentSpans words) except -1
