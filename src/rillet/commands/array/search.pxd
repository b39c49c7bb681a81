cimport cython
from libc.string cimport memchr, memcmp
from rillet.commands.array.values cimport array_to_read, parse_index, write_index, write_word
from rillet.structs.array.regex_matcher cimport RegexMatcher
from rillet.structs.array.array_cursor cimport ArrayCursor
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.array cimport Array


@cython.final
cdef class Predicates:
    cdef list words
    cdef list tests
    cdef int _kind
    cdef bytes _text
    cdef bint all
    cdef bint fold
    cdef bint with_values
    cdef long long limit
    cpdef bint match(self, bytes value)


cdef bint _contains(bytes value, bytes text)
cdef unsigned long long _bound(bytes raw, Array array) except? 7777777777777777777
