cimport cython
from rillet.runtime.registry cimport Command

@cython.final
cdef class CommandCounters:
    cdef public long long calls
    cdef public long long nanoseconds
    cdef public long long rejected
    cdef public long long failed

@cython.final
cdef class Statistics:
    cdef readonly list commands
    cdef readonly dict errors
    cdef public long long commands_processed
    cdef public long long error_replies
    cdef public long long expired_keys
    cdef public long long expired_keys_active
    cdef public long long expired_fields
    cdef public long long expired_fields_active
    cpdef CommandCounters of(self, Command entry)
