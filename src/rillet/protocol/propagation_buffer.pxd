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

    cpdef bint begin(self, int db, long long ms) except -1
    cpdef bint select(self, int db) except -1
    cpdef bint forget_db(self) except -1
    cpdef bint note_time(self, long long second) except -1
    cpdef bint reserve(self, list[bytes] argv) except -1
    cpdef bint reserve_transaction(self, list commands) except -1
    cpdef bint reserve_spans(self, ArgumentSpans words) except -1
    cpdef bint command(self, list[bytes] argv) except -1
    cpdef bint deletions(self, bytes name, list[bytes] keys) except -1
    cpdef bint raw(self, bytes data) except -1
    cpdef bint header(self, Py_ssize_t count) except -1
    cpdef bint spans(self, ArgumentSpans words) except -1
    cdef bint _single(self, ArgumentSpans words, Py_ssize_t start, Py_ssize_t stop) except -1
    cdef bint _adjacent(self, ArgumentSpans words, Py_ssize_t start, Py_ssize_t stop) except -1
    cpdef bint number(self, long long value) except -1
    cpdef bint stream_id(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef bytes take(self)
    cpdef bint share(self, bint shared) except -1
    cpdef bytes pull(self)
    cpdef bint for_replicas(self, int db, list[bytes] argv) except -1
    cpdef bint for_log(self, int db, list[bytes] argv, long long ms) except -1
    cdef bint _hold(self) except -1
