cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter


cdef class ReceiveBuffer:
    cdef public bytearray buf
    cdef public Py_ssize_t pos
    cdef public Py_ssize_t end
