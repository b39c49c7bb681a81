cimport cython
from rillet.commands.span_arguments cimport integer_at
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

cdef int _word(ArgumentSpans words, Py_ssize_t at)

@cython.final
cdef class SetOptions:
    cdef readonly int flags
    cdef readonly int expiry
    cdef readonly Py_ssize_t expiry_at
    cdef readonly int condition
    cdef readonly Py_ssize_t operand_at
    cdef readonly bint valkey
    cpdef bint read(self, Session session, ArgumentSpans words, Py_ssize_t at, int allowed, int keep)
    cpdef long long expires_at(self, Session session, ArgumentSpans words) except? -1

cpdef long long expiry_ms(Session session, long long value, long long unit, bint relative) except? -1
cpdef list[bytes] without_get(ArgumentSpans words, Py_ssize_t at)
