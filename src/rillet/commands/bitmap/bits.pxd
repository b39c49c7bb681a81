cimport cython
from rillet.commands.span_arguments cimport integer_at
from rillet.commands.string.values cimport StringCommand, store_string, string_at
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.bits cimport combine, count_bits, find_bit, read_field, write_field
from rillet.structs.listpack cimport parse_digits
from rillet.types.string cimport String, new_string

cpdef Py_ssize_t largest_offset(Session session)
cdef Py_ssize_t _bit_offset(Session session, ArgumentSpans words)
cpdef String string_with_bits(Database db, ArgumentSpans words, String string, Py_ssize_t bits)
cdef bint _by_bit(ArgumentSpans words, Py_ssize_t at)

@cython.final
cdef class Setbit(Implementation):
    pass

@cython.final
cdef class Getbit(StringCommand):
    pass

cdef class _RangeCommand(StringCommand):
    cdef long long first
    cdef long long last
    cdef bint find(self, Session session, ArgumentSpans words)
    cdef bint clip(self, long long start, long long end, Py_ssize_t unit)

@cython.final
cdef class Bitcount(_RangeCommand):
    pass

@cython.final
cdef class Bitpos(_RangeCommand):
    pass

cdef int _operation(Session session, ArgumentSpans words)

@cython.final
cdef class Bitop(StringCommand):
    pass
