cimport cython
from rillet.runtime.latency_histogram cimport LatencyHistogram
from rillet.runtime.registry cimport Command

@cython.final
cdef class CommandStats:
    cdef public long long calls
    cdef public long long nanoseconds
    cdef public long long rejected
    cdef public long long failed
    cdef public long long slow
    cdef public long long slow_us
    cdef public long long slowest_us
    cdef public LatencyHistogram histogram
    cpdef bint count(self, long long nanoseconds, long long times, bint tracked)

@cython.final
cdef class EngineStats:
    cdef readonly list commands
    cdef readonly dict errors
    cdef public long long slow
    cdef public long long slow_us
    cdef public long long slowest_us
    cdef public long long commands_processed
    cdef public long long error_replies
    cdef public long long expired_keys
    cdef public long long expired_keys_active
    cdef public long long expired_fields
    cdef public long long expired_fields_active
    cdef public long long buffer_shrinks
    cdef public long long input_limit_hits
    cdef public long long output_limit_hits
    cdef public long long turns
    cdef public long long turn_commands
    cdef public long long most_commands
    cdef public long long busy_ns
    cdef public long long longest_ns
    cdef public long long cron_ns
    cdef public long long log_ns
    cpdef bint count_turn(self, long long commands, long long nanoseconds)
    cpdef CommandStats of_command(self, Command entry)
    cpdef bint count_slow(self, Command entry, long long microseconds)
