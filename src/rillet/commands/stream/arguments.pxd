cimport cython
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.id cimport IDReader

@cython.final
cdef class Interval:
    cdef public unsigned long long start_ms
    cdef public unsigned long long start_seq
    cdef public unsigned long long end_ms
    cdef public unsigned long long end_seq
    cdef IDReader _reader
    cpdef bint read_start(self, const unsigned char *word, Py_ssize_t size)
    cpdef bint read_end(self, const unsigned char *word, Py_ssize_t size)

@cython.final
cdef class TrimArguments:
    cdef public int strategy
    cdef public int delete_strategy
    cdef public long long maxlen
    cdef public unsigned long long minid_ms
    cdef public unsigned long long minid_seq
    cdef public bint approx
    cdef public long long limit
    cdef public bint limit_given
    cdef public Py_ssize_t threshold_at
    cdef public Py_ssize_t id_at
    cdef public bint id_given
    cdef public unsigned long long ms
    cdef public unsigned long long seq
    cdef public bint seq_given
    cdef public bint no_mkstream
    cdef public bytes pid
    cdef public bytes iid
    cdef public bint idmp_auto
    cpdef bint clear(self)
    cpdef bint read(self, Session session, ArgumentSpans words, bint xadd)
    cdef bint _is_star(self, ArgumentSpans words, Py_ssize_t at)
    cdef Py_ssize_t _read_option(self, Session session, ArgumentSpans words, Py_ssize_t at, bint xadd)
    cdef Py_ssize_t _read_producer(self, ArgumentSpans words, Py_ssize_t at, bint auto)
    cdef Py_ssize_t _read_threshold(self, ArgumentSpans words, Py_ssize_t at, int strategy)
    cdef bint _read_new_id(self, ArgumentSpans words, Py_ssize_t at)
    cdef bint _settle(self, Session session, bint xadd)

cpdef long long default_limit(long long node_max_entries) noexcept
cpdef bytes option(bytes word)
cpdef long long integer(bytes word, str message=*)
cpdef int delete_strategy(bytes word) noexcept
cpdef long long to_signed(unsigned long long value) except? -1
cpdef bint read_id(IDReader reader, bytes word, bint strict=*)
cdef bint read_id_at(IDReader reader, ArgumentSpans words, Py_ssize_t index)
cdef bint is_named(ArgumentSpans words, Py_ssize_t index, bytes name)
cdef long long integer_at(ArgumentSpans words, Py_ssize_t index, str message=*) except? -1
