from rillet.structs.listpack cimport Listpack, is_int64, parse_int64

cpdef bytearray scores_of(list texts, int style)
cdef double *_doubles(bytearray buf) noexcept
cdef Py_ssize_t *integers_in(bytearray buf) noexcept
cpdef bytearray order_by_scores(list items, bytearray scored, bint descending)
cpdef list first_by_scores(list items, bytearray scored, bint descending, Py_ssize_t count)
cpdef Listpack pack(list values)
cpdef Py_ssize_t most_bytes(list values)
cdef bint _is_after(double *scores, list items, Py_ssize_t one, Py_ssize_t other, bint descending) except -1
cdef bytes _text(object item)
cdef bint _merge(double *scores, list items, Py_ssize_t *source, Py_ssize_t *target, Py_ssize_t start, Py_ssize_t middle, Py_ssize_t end, bint descending)
cpdef list picked(list items, bytearray ordered, Py_ssize_t start, Py_ssize_t end)
cpdef list partial_order(list items, list keys, Py_ssize_t first, Py_ssize_t last, bint descending)
cdef int _compare(list keys, list order, Py_ssize_t i, Py_ssize_t j, bint descending) except -2
cdef bint _exchange(list order, Py_ssize_t i, Py_ssize_t j, Py_ssize_t count)
cdef Py_ssize_t _median(list keys, list order, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, bint descending)
cdef Py_ssize_t _pivot(list keys, list order, Py_ssize_t start, Py_ssize_t size, bint descending)
cdef list _partition(list keys, list order, Py_ssize_t start, Py_ssize_t size, bint descending)
cdef bint sort_integers(bytearray kept, bytearray spared, Py_ssize_t count, bint descending)
cdef void _merge_integers(Py_ssize_t *source, Py_ssize_t *target, Py_ssize_t start, Py_ssize_t middle, Py_ssize_t end) noexcept
