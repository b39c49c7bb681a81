cimport cython

@cython.final
cdef class Command:
    cdef readonly str name
    cdef readonly str fullname
    cdef readonly str container
    cdef readonly long arity
    cdef readonly object flags
    cdef readonly bint write
    cdef readonly bint no_auth
    cdef readonly bytes word
    cdef readonly int traits
    cdef readonly tuple keys
    cdef readonly str group
    cdef readonly str since
    cdef readonly long level
    cdef readonly str valkey
    cdef readonly str complexity
    cdef readonly str summary
    cdef readonly str syntax
    cdef readonly object get_keys
    cdef readonly str module
    cdef readonly str access
    cdef readonly str categories
    cdef readonly str tips
    cdef readonly object handler
    cdef public dict subcommands
    cdef public long index
    cpdef bint known_to(self, object compat)
    cpdef bint accepts(self, Py_ssize_t count)
