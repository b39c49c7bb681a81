cimport cython
from rillet.protocol.reply_writer cimport put_digits

cdef unsigned int _crc32(bytes data, Py_ssize_t start, Py_ssize_t stop, unsigned int crc) except? 0
cdef bytes _numbers(unsigned long long length, unsigned long long synced, unsigned long long seq)
cdef bytes _begin(unsigned int crc)

@cython.final
cdef class FrameReader:
    cdef readonly bint ours
    cdef readonly long long plain_from
    cdef readonly long long break_at
    cdef readonly str why
    cdef object _file
    cdef long long _size
    cdef bytes _buffer
    cdef long long _at
    cdef bint _begun
    cdef unsigned long long _file_seq
    cdef unsigned int _crc
    cdef unsigned long long _length
    cdef unsigned long long _synced
    cdef unsigned long long _seq

    cpdef bytes read(self)
    cdef bytes _plain(self)
    cdef bint _need(self, Py_ssize_t size)
    cdef Py_ssize_t _next(self, Py_ssize_t skip)
    cdef Py_ssize_t _whole(self, Py_ssize_t behind) except -2
    cdef Py_ssize_t _read_line(self, bytes data, Py_ssize_t start)
    cdef bint _break(self, long long at, str why)
    cpdef long long checked_end(self) except -1
