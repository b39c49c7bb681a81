cimport cython

@cython.final
cdef class IDReader:
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cdef readonly bint seq_given
    cdef readonly bint exclusive
    cpdef bint read(self, bytes text, unsigned long long missing_seq, bint strict)
    cpdef bint read_new(self, bytes text)
    cdef bint read_span(self, const unsigned char *text, Py_ssize_t size, unsigned long long missing_seq,
                        bint strict)
    cpdef bint read_interval(self, const unsigned char *text, Py_ssize_t size, unsigned long long missing_seq)
    cdef bint _read_slowly(self, bytes text, unsigned long long missing_seq, bint strict)
    cdef bint _number(self, bytes text, bint sequence)

cpdef bint less(unsigned long long a_ms, unsigned long long a_seq, unsigned long long b_ms, unsigned long long b_seq) noexcept
cpdef long long delta(unsigned long long value, unsigned long long base) noexcept
cpdef unsigned long long undelta(unsigned long long base, long long stored) noexcept
cpdef bytes encode_key(unsigned long long ms, unsigned long long seq)
cpdef unsigned long long key_ms(bytes key)
cpdef unsigned long long key_seq(bytes key)
cpdef bytes format_id(unsigned long long ms, unsigned long long seq)
