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

    cdef bint use_buffer(self, bytearray buf)
    cdef bint _reserve(self, Py_ssize_t need) except -1
    cdef bint _grow(self, Py_ssize_t need)
    cdef bint _append(self, bytes data) except -1
    cdef bint append_span(self, const unsigned char *source, Py_ssize_t size)
    cdef bint _header(self, unsigned char prefix, long long value) except -1
    cdef bint _negative(self, unsigned char prefix, long long value)
    cdef bint _scalar(self, unsigned char prefix, bytes text)
    cdef bint _insert(self, Py_ssize_t mark, unsigned char prefix, Py_ssize_t size)

    cpdef bint reserve(self, Py_ssize_t need)
    cpdef bint raw(self, bytes data)
    cpdef bint ok(self)
    cpdef bint simple(self, bytes text)
    cpdef bint error(self, bytes text)
    cpdef bint integer(self, long long value)
    cpdef bint unsigned(self, unsigned long long value)
    cpdef bint bulk(self, bytes data)
    cpdef bint bulks(self, list strings)
    cdef bint bulk_span(self, const unsigned char *source, Py_ssize_t size)
    cpdef bint bulk_slice(self, bytearray source, Py_ssize_t start, Py_ssize_t size)
    cpdef bint raw_then_slice(self, bytes before, bytearray source, Py_ssize_t start, Py_ssize_t size)
    cpdef bint bulk_int(self, long long value)
    cpdef bint stream_id(self, unsigned long long ms, unsigned long long seq)
    cpdef bint null(self)
    cpdef bint null_array(self)
    cpdef bint array(self, Py_ssize_t size)
    cpdef bint map(self, Py_ssize_t size)
    cpdef bint set(self, Py_ssize_t size)
    cpdef bint push(self, Py_ssize_t size)
    cpdef bint attribute(self, Py_ssize_t size)
    cpdef bint double(self, double value)
    cpdef bint boolean(self, bint value)
    cpdef bint bignum(self, bytes digits)
    cpdef bint verbatim(self, bytes data, bytes kind=*)
    cpdef Py_ssize_t mark(self)
    cpdef bint truncate(self, Py_ssize_t mark)
    cpdef bint insert_array(self, Py_ssize_t mark, Py_ssize_t size)
    cpdef bint insert_map(self, Py_ssize_t mark, Py_ssize_t size)
    cpdef bint insert_set(self, Py_ssize_t mark, Py_ssize_t size)
    cpdef bytes take_bytes(self)
    cpdef bint shrink(self, Py_ssize_t peak)
    cpdef object hand_over(self)

cpdef bytes pack_command(object argv)
