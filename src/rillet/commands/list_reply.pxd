from rillet.protocol.writer cimport Replies
from rillet.structs.listpack cimport Listpack
from rillet.structs.quicklist cimport Node, Quicklist

cpdef bint write_range(Replies out, Quicklist elements, object start, Py_ssize_t count, bint backwards=*) except -1
cpdef bint write_element(Replies out, Quicklist elements, object index) except -1
cdef bint _write(Replies out, Quicklist elements, object start, Py_ssize_t count, bint backwards) except -1
cdef Py_ssize_t _write_packed(
    Replies out, Listpack packed, Py_ssize_t pos, Py_ssize_t count, bint backwards
) except -1
