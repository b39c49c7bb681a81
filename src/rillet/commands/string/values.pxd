from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.types.string cimport String

cdef class StringCommand(Implementation):
    cdef const unsigned char *at
    cdef Py_ssize_t size
    cdef int form
    cdef bint view(self, Dict keys, Py_ssize_t n)
    cdef bint has_string(self, Dict keys, Py_ssize_t n)

cpdef bint write_string_at(Session session, Py_ssize_t n, bint lenient=*)
cpdef bint write_string_of(Session session, bytes key, bint lenient=*)
cpdef String string_to_read(Session session, bytes key)
cpdef String string_to_change(Database db, bytes key)
cpdef String string_for_write(Database db, bytes key)
cpdef String string_at(Database db, ArgumentSpans words, Py_ssize_t n)
cpdef bint store_string(Session session, bytes key, bytes data, bytes event, int form=*)
cpdef bint update_string(Session session, bytes key, bytes data, int form, bytes event)
cpdef int form_of_word(Session session)
