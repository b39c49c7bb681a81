cimport cython
from rillet.commands.small_values cimport MISSING, SmallValuePath
from rillet.keyspace.database cimport Database
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport hash_bytes
from rillet.structs.listpack cimport parse_digits

cdef bint _allows(int condition, long long current, long long when) except -1

cdef class TimePath(SmallValuePath):
    cdef long long _unit
    cdef bint _relative

@cython.final
cdef class ExpireFastPath(TimePath):
    cdef int _condition(self, ArgumentSpans words) except -1

@cython.final
cdef class TtlFastPath(TimePath):
    pass

@cython.final
cdef class ExistsFastPath(SmallValuePath):
    pass
