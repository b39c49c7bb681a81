cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter, count_digits
from rillet.structs.argument_spans cimport ArgumentSpans


@cython.final
cdef class PropagationBuffer:
    cdef ReplyWriter out
    cdef readonly int db
    cdef readonly long long second
    cdef public bint timestamps
    cdef readonly Py_ssize_t pulled
    cdef list _held
    cdef list _times

    cpdef bint begin(self, int db, long long ms)
    cpdef bint select(self, int db)
    cpdef bint forget_db(self)
    cpdef bint note_time(self, long long second)
    cpdef bint reserve(self, list[bytes] argv)
    cpdef bint reserve_transaction(self, list commands)
    cpdef bint reserve_spans(self, ArgumentSpans words)
    cpdef bint command(self, list[bytes] argv)
    cpdef bint deletions(self, bytes name, list[bytes] keys)
    cpdef bint raw(self, bytes data)
    cpdef bint header(self, Py_ssize_t count)
    cpdef bint spans(self, ArgumentSpans words)
    cdef bint _single(self, ArgumentSpans words, Py_ssize_t start, Py_ssize_t stop)
    cdef bint _adjacent(self, ArgumentSpans words, Py_ssize_t start, Py_ssize_t stop)
    cpdef bint number(self, long long value)
    cpdef bint stream_id(self, unsigned long long ms, unsigned long long seq)
    cpdef bytes take_bytes(self)
    cpdef bint share(self, bint shared)
    cpdef bytes pull(self)
    cpdef bint for_replicas(self, int db, list[bytes] argv)
    cpdef bint for_log(self, int db, list[bytes] argv, long long ms)
    cdef bint _hold(self)
