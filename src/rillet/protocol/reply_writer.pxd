cimport cython

cdef Py_ssize_t count_digits(unsigned long long value) noexcept
cdef Py_ssize_t put_digits(unsigned char *buf, Py_ssize_t pos, unsigned long long value) noexcept
cdef Py_ssize_t put_line_end(unsigned char *buf, Py_ssize_t pos) noexcept
cdef Py_ssize_t put_bulk(unsigned char *buf, Py_ssize_t pos, const unsigned char *source, Py_ssize_t size) noexcept
cdef Py_ssize_t put_header(unsigned char *buf, Py_ssize_t pos, unsigned char prefix, unsigned long long value) noexcept

@cython.final
cdef class ReplyWriter:
    cdef readonly bytearray buf
    cdef public Py_ssize_t used
    cdef public int resp
    cdef Py_ssize_t before
    cdef Py_ssize_t _room
    cdef unsigned char *_start

    cdef bint use_buffer(self, bytearray buf) except -1
    cdef bint _reserve(self, Py_ssize_t need) except -1
    cdef bint _grow(self, Py_ssize_t need) except -1
    cdef bint _append(self, bytes data) except -1
    cdef bint append_span(self, const unsigned char *source, Py_ssize_t size) except -1
    cdef bint _header(self, unsigned char prefix, long long value) except -1
    cdef bint _negative(self, unsigned char prefix, long long value) except -1
    cdef bint _scalar(self, unsigned char prefix, bytes text) except -1
    cdef bint _insert(self, Py_ssize_t mark, unsigned char prefix, Py_ssize_t size) except -1

    cpdef bint reserve(self, Py_ssize_t need) except -1
    cpdef bint raw(self, bytes data) except -1
    cpdef bint ok(self) except -1
    cpdef bint simple(self, bytes text) except -1
    cpdef bint error(self, bytes text) except -1
    cpdef bint integer(self, long long value) except -1
    cpdef bint unsigned(self, unsigned long long value) except -1
    cpdef bint bulk(self, bytes data) except -1
    cpdef bint bulks(self, list strings) except -1
    cdef bint bulk_span(self, const unsigned char *source, Py_ssize_t size) except -1
    cpdef bint bulk_slice(self, bytearray source, Py_ssize_t start, Py_ssize_t size) except -1
    cpdef bint raw_then_slice(self, bytes before, bytearray source, Py_ssize_t start, Py_ssize_t size) except -1
    cpdef bint bulk_int(self, long long value) except -1
    cpdef bint stream_id(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef bint null(self) except -1
    cpdef bint null_array(self) except -1
    cpdef bint array(self, Py_ssize_t size) except -1
    cpdef bint map(self, Py_ssize_t size) except -1
    cpdef bint set(self, Py_ssize_t size) except -1
    cpdef bint push(self, Py_ssize_t size) except -1
    cpdef bint attribute(self, Py_ssize_t size) except -1
    cpdef bint double(self, double value) except -1
    cpdef bint boolean(self, bint value) except -1
    cpdef bint bignum(self, bytes digits) except -1
    cpdef bint verbatim(self, bytes data, bytes kind=*) except -1
    cpdef Py_ssize_t mark(self)
    cpdef bint truncate(self, Py_ssize_t mark) except -1
    cpdef bint insert_array(self, Py_ssize_t mark, Py_ssize_t size) except -1
    cpdef bint insert_map(self, Py_ssize_t mark, Py_ssize_t size) except -1
    cpdef bint insert_set(self, Py_ssize_t mark, Py_ssize_t size) except -1
    cpdef bytes take(self)
    cpdef bint shrink(self, Py_ssize_t peak) except -1
    cpdef object hand_over(self)

cpdef bytes pack_command(object argv)
