cimport cython
from rillet.structs.memory cimport copy_out, copy_slice, equals, put_u32
from rillet.structs.argument_spans cimport ArgumentSpans


cpdef long long parse_int64(bytes text) except? -77777777777
cpdef bint is_int64(bytes text)
cdef long long parse_digits(const unsigned char *text, Py_ssize_t n) noexcept
cdef bint is_lowest(const unsigned char *text, Py_ssize_t n) noexcept


@cython.final
cdef class Listpack:
    cdef readonly bytearray buf
    cdef public Py_ssize_t used
    cdef readonly Py_ssize_t at_start
    cdef readonly Py_ssize_t at_len
    cdef readonly long long at_int
    cdef readonly Py_ssize_t at_next

    cpdef bytes to_bytes(self)
    cpdef Listpack copy(self)
    cpdef Py_ssize_t length(self)
    cpdef bint shrink(self)
    cpdef bint can_append(self, Py_ssize_t nbytes)
    cpdef bint validate(self, bint deep=*)
    cpdef bint check(self)

    cpdef Py_ssize_t first(self) except? -2
    cpdef Py_ssize_t last(self) except? -2
    cpdef Py_ssize_t next(self, Py_ssize_t pos) except? -2
    cpdef Py_ssize_t prev(self, Py_ssize_t pos) except? -2
    cpdef Py_ssize_t skip(self, Py_ssize_t pos, Py_ssize_t count=*)
    cpdef Py_ssize_t seek(self, Py_ssize_t index) except? -2
    cpdef bint is_end(self, Py_ssize_t pos)

    cpdef bint decode(self, Py_ssize_t pos)
    cpdef object get(self, Py_ssize_t pos)
    cpdef bytes get_bytes(self, Py_ssize_t pos)
    cpdef long long get_int(self, Py_ssize_t pos) except? -77777777777
    cpdef list values(self)
    cpdef list[bytes] texts(self)
    cpdef bint compare(self, Py_ssize_t pos, bytes value)
    cpdef Py_ssize_t find(self, Py_ssize_t pos, bytes value, Py_ssize_t skip=*) except? -2

    cpdef bint append(self, bytes value)
    cpdef bint append_int(self, long long v)
    cpdef bint append_range(self, Listpack source, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count)
    cdef bint open(self, Py_ssize_t ints, ArgumentSpans words, Py_ssize_t first, Py_ssize_t step, Py_ssize_t count)
    cdef bint push_int(self, long long v) noexcept
    cdef bint push_words(self, ArgumentSpans words, Py_ssize_t first, Py_ssize_t step, Py_ssize_t count) noexcept
    cdef bint close(self, Py_ssize_t count)
    cdef bint matches(self, Py_ssize_t pos, ArgumentSpans words, Py_ssize_t first, Py_ssize_t step, Py_ssize_t count)
    cpdef bint prepend(self, bytes value)
    cpdef bint prepend_int(self, long long v)
    cpdef Py_ssize_t insert(self, Py_ssize_t pos, bytes value, bint after)
    cpdef Py_ssize_t insert_int(self, Py_ssize_t pos, long long v, bint after)
    cpdef Py_ssize_t replace(self, Py_ssize_t pos, bytes value)
    cpdef Py_ssize_t replace_int(self, Py_ssize_t pos, long long v)
    cpdef Py_ssize_t delete(self, Py_ssize_t pos) except? -2
    cpdef Py_ssize_t delete_range(self, Py_ssize_t index, Py_ssize_t count)
    cpdef bint move_range(self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t to)

    cdef Py_ssize_t count(self)
    cdef bint set_count(self, Py_ssize_t n)
    cdef bint recount(self, Py_ssize_t change)
    cdef bytearray room(self, Py_ssize_t need)
    cdef Py_ssize_t place(self, Py_ssize_t pos, bint after)
    cdef bint gap(self, Py_ssize_t pos, Py_ssize_t replaced, Py_ssize_t size)
    cdef Py_ssize_t put(self, Py_ssize_t pos, Py_ssize_t replaced, const unsigned char *value, Py_ssize_t n)
    cdef Py_ssize_t put_int(self, Py_ssize_t pos, Py_ssize_t replaced, long long v)
    cdef bint load(self, const unsigned char *source, Py_ssize_t size)
    cdef bint clear(self)
    cdef bint _is_at_start(self, const unsigned char *value, Py_ssize_t n) noexcept
    cdef int order(self, Py_ssize_t pos, const unsigned char *value, Py_ssize_t n) except -3
    cdef Py_ssize_t find_span(self, Py_ssize_t pos, const unsigned char *value, Py_ssize_t n, Py_ssize_t skip) except? -2
    cdef bint append_span(self, const unsigned char *value, Py_ssize_t n)
    cdef Py_ssize_t insert_span(self, Py_ssize_t pos, const unsigned char *value, Py_ssize_t n)
    cdef Py_ssize_t replace_span(self, Py_ssize_t pos, const unsigned char *value, Py_ssize_t n)
