cimport cython
from libc.string cimport memcpy
from rillet.commands.hash.read cimport write_field
from rillet.commands.small_values cimport HEADER, NOT_INT, SmallValuePath
from rillet.commands.string.values cimport StringCommand
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.protocol.reply_writer cimport ReplyWriter, put_digits
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack, parse_digits
from rillet.structs.quicklist cimport Quicklist, QuicklistNode
from rillet.structs.sorting cimport integers_in, sort_integers

@cython.final
cdef class SortFastPath(SmallValuePath):
    cdef bytearray _numbers
    cdef bytearray _spare
    cdef ArgumentSpans _target
    cdef Py_ssize_t _read_numbers(self, Database db, Py_ssize_t n) except -2
    cdef bint _store(
        self, Session session, Database db, ArgumentSpans words, Py_ssize_t n, Py_ssize_t target,
        Py_ssize_t first, Py_ssize_t end
    ) except -1

@cython.final
cdef class NamedKeys(StringCommand):
    cdef bytearray _room
    cdef ArgumentSpans _words
    cdef bint _put_name(self, bytes prefix, object element, bytes postfix) except -1
    cdef int find_text(self, Database db, bytes prefix, object element, bytes postfix) except -3
    cdef object text_or_number(self)
    cdef bint write_text(self, ReplyWriter out) except -1
    cdef bint write_field(self, Session session, bytes prefix, object element, bytes postfix, bytes field) except -1
