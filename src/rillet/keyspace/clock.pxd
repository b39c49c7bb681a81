cdef extern from "Python.h":
    bint PyCFunction_Check(object function)
    void* PyCFunction_GetFunction(object function) except? NULL

# The C function behind time.time_ns when this module was imported.
cdef void* _genuine

cdef class Clock:
    cpdef long long now_ms(self) except? -1
    cpdef long long now_us(self) except? -1
    cpdef long long ticks(self) except? -1

cdef class ManualClock(Clock):
    cdef public long long us
