cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.structs.dict cimport Dict

@cython.final
cdef class AccessClock:
    cdef readonly Clock clock
    cdef readonly long seconds
    cdef readonly long minutes
    cdef readonly long long due
    cdef public int mode
    cdef public long log_factor
    cdef public long decay_time
    cdef public bint untouched
    cdef public bint exact
    cdef readonly long stamp
    cdef unsigned long long _random
    cdef object __weakref__
    cpdef bint choose_stamp(self)
    cpdef bint update(self)
    cpdef bint touch(self, Dict keys, Py_ssize_t n)
    cpdef bint touch_modified(self, Dict keys, Py_ssize_t n)
    cpdef bint overwrite(self, Dict keys, Py_ssize_t n)
    cpdef bint start(self, Dict keys, Py_ssize_t n)
    cpdef long idle_time(self, long bits) except -1
    cpdef long frequency(self, long bits) except -1
    cdef long _decayed(self, long bits) noexcept
    cdef long _incremented(self, long count) noexcept
