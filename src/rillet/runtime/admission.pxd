cimport cython
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Rules:
    cdef int _count
    cdef int _when[16]
    cdef int _only[16]
    cdef int _but[16]
    cdef int _verdict[16]
    cdef int find(self, int at, int flags, int traits) noexcept

cpdef int admit(object engine, Session session, Command entry, ArgumentSpans words, int flags)
