cimport cython
from rillet.keyspace.expire_cycle cimport ExpireCycle
from rillet.runtime.upkeep cimport Upkeep

cdef class Expiry(Upkeep):
    cdef public bint active_expire
    cdef public bint allow_access_expired
    cdef public bint applying
    cdef readonly ExpireCycle expiry
    cdef readonly bint importing
    cdef public bint keeps_expired
    cdef public bint writing
    cdef long long _idmp_expired
    cdef bint _sees_expired
    cdef bint _writes
