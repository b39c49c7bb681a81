from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.listpack cimport Listpack
from rillet.structs.quicklist cimport QuicklistNode, Quicklist

cpdef bint write_range(ReplyWriter out, Quicklist elements, Py_ssize_t start, Py_ssize_t count, bint backwards=*)
cpdef bint write_element(ReplyWriter out, Quicklist elements, object index)
cdef bint write_end(ReplyWriter out, Quicklist elements, bint head)
cdef bint _write(ReplyWriter out, Quicklist elements, Py_ssize_t start, Py_ssize_t count, bint backwards)
cdef Py_ssize_t _write_packed(
    ReplyWriter out, Listpack packed, Py_ssize_t pos, Py_ssize_t count, bint backwards
)
