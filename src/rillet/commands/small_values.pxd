cimport cython
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack, parse_digits
from rillet.structs.dict_table cimport hash_bytes

cdef Py_ssize_t MISSING
cdef Py_ssize_t UNUSUAL
cdef Py_ssize_t HEADER
cdef Py_ssize_t MOST_WORDS
cdef long long NOT_INT

cdef class SmallValuePath(Implementation):
    cdef bytes name
    cdef bint one(self, Session session, Database db, ArgumentSpans words) except -1
    cpdef bint execute(self, Session session, list[bytes] argv) except -1
    cdef Py_ssize_t find(self, Database db, ArgumentSpans words) except -3
    cdef int read(self, Database db, ArgumentSpans words) except -3
    cdef int open(self, Database db, ArgumentSpans words) except -3
    cdef int _unpack(self, Database db, Py_ssize_t n) except -3
    cdef int read_range(self, Database db, ArgumentSpans words) except -3
    cdef bint write_range(self, ReplyWriter out, Database db, Py_ssize_t step) except -1
    cdef bint hit(self, Database db) except -1
    cdef bint remove_elements(self, Session session, Database db, ArgumentSpans words, int step) except -1
    cdef bint put_back(self, Database db, ArgumentSpans words) except -1
    cdef bint touch(self, Database db, Py_ssize_t n) except -1
    cdef bint keep(self, Database db, ArgumentSpans words, Py_ssize_t n, int tag) except -1
    cdef bint store(self, Database db, ArgumentSpans words, Py_ssize_t n, Py_ssize_t size) except -1

cdef bint write_entry(ReplyWriter out, Listpack packed, Py_ssize_t pos) except -1
cdef bint write_entries(ReplyWriter out, Listpack packed, Py_ssize_t pos, Py_ssize_t count, Py_ssize_t step) except -1

cdef class LengthFastPath(SmallValuePath):
    cdef int _tags
    cdef Py_ssize_t _words
