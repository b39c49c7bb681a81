from libc.math cimport sqrt

cdef unsigned long long *pair_table() noexcept
cdef long long estimate_sum(unsigned long long total) except -2
cdef long long estimate(unsigned int *counts) except -2
