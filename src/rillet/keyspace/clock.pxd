cdef class Clock:
    cpdef long long now_ms(self) except? -1
    cpdef long long now_us(self) except? -1
    cpdef long long ticks(self) except? -1

cdef class ManualClock(Clock):
    cdef public long long us
