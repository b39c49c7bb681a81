cimport cython
from rillet.columns.row_builder cimport RowBuilder, Shape, Slot
from rillet.columns.column cimport Column
from rillet.structs.listpack cimport Listpack, is_int64, parse_int64
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.stream.id cimport encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.iterator cimport StreamNodes
from rillet.types.stream.node cimport validate_node


@cython.final
cdef class NodeReader:
    cdef public RowBuilder rows
    cdef public Py_ssize_t max_rows
    cdef public Py_ssize_t max_bytes
    cdef unsigned long long after_ms
    cdef unsigned long long after_seq
    cdef unsigned long long end_ms
    cdef unsigned long long end_seq
    cdef readonly unsigned long long last_ms
    cdef readonly unsigned long long last_seq
    cdef readonly Py_ssize_t entries
    cdef readonly bint over
    cdef bytearray buf
    cdef Py_ssize_t pos
    cdef Py_ssize_t stop
    cdef unsigned long long master_ms
    cdef unsigned long long master_seq
    cdef Shape shape
    cdef bytes names
    cdef Py_ssize_t start
    cdef Py_ssize_t size
    cdef long long number
    cdef Py_ssize_t next
    cpdef bint open(self, bytearray buf, Py_ssize_t start, Py_ssize_t size, unsigned long long ms,
                    unsigned long long seq)
    cpdef int decode(self)
    cdef bint _item(self, const unsigned char *data, Py_ssize_t p) except -1
    cdef bint _wide_item(self, const unsigned char *data, Py_ssize_t p, int byte)
    cdef long long _int(self, const unsigned char *data, Py_ssize_t p) except? -77777777777
    cdef long long _small(self, const unsigned char *data, Py_ssize_t p) except? -77777777777
    cdef long long _int_of_text(self) except? -77777777777
    cdef bint _read_names(self, const unsigned char *data, Py_ssize_t first, long long count)
    cdef bint _same_names(self, const unsigned char *data, Py_ssize_t p, Py_ssize_t n) noexcept
    cdef bytes _word(self, const unsigned char *data, Py_ssize_t p)
    cdef bint _entry(self, const unsigned char *data)
    cdef bint _values(self, const unsigned char *data, Py_ssize_t p, unsigned long long ms,
                      unsigned long long seq) except -1
    cdef bint _give(self, const unsigned char *data, Py_ssize_t p, Column owner, Column items)
    cdef bint _pairs(self, const unsigned char *data, Py_ssize_t p, long long count, unsigned long long ms,
                     unsigned long long seq)
    cdef bint _malformed(self, const unsigned char *data, Py_ssize_t p, Slot slot, long long count)


@cython.final
cdef class NodeDecoder:
    cdef readonly NodeReader reader
    cdef RaxIterator nodes
    cdef bint busy
    cpdef int decode(self)
