cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax cimport Rax
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.sized cimport SizedValue
from rillet.types.stream.id cimport encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.node cimport count_deleted, entry_before, first_entry, int_at, mark_deleted, master_fields, size_at


cdef class StreamNodes(SizedValue):
    cdef readonly Rax rax
    cdef public unsigned long long length
    cdef public Py_ssize_t node_bytes
    cdef public Listpack tail
    cdef readonly unsigned long long tail_ms
    cdef readonly unsigned long long tail_seq
    cdef readonly long long tail_live
    cdef readonly long long tail_entries
    cdef readonly Py_ssize_t tail_fields
    cdef readonly Py_ssize_t tail_pos
    cdef public Listpack head
    cdef readonly bytes head_key
    cdef readonly Py_ssize_t head_pos
    cdef public object sums
    cdef readonly long long changes
    cdef Listpack node
    cdef unsigned long long node_ms
    cdef unsigned long long node_seq
    cdef bint moved(self)
    cdef Listpack find_node(self, unsigned long long ms, unsigned long long seq)
    cdef Listpack find_tail(self)
    cdef Listpack find_head(self)


@cython.final
@cython.no_gc
cdef class NodePlace:
    cdef long long changes
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef unsigned long long node_ms
    cdef unsigned long long node_seq
    cdef Py_ssize_t fields
    cdef Py_ssize_t start
    cdef Py_ssize_t pos
    cdef Py_ssize_t ahead


@cython.final
cdef class StreamIterator:
    cdef readonly StreamNodes stream
    cdef readonly unsigned long long start_ms
    cdef readonly unsigned long long start_seq
    cdef readonly unsigned long long end_ms
    cdef readonly unsigned long long end_seq
    cdef public bint skip_tombstones
    cdef readonly Listpack lp
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cdef readonly Py_ssize_t numfields
    cdef readonly long long flags
    cdef readonly Py_ssize_t field_pos
    cdef readonly bint field_text
    cdef readonly Py_ssize_t field_start
    cdef readonly Py_ssize_t field_len
    cdef readonly long long field_int
    cdef readonly Py_ssize_t value_pos
    cdef readonly bint value_text
    cdef readonly Py_ssize_t value_start
    cdef readonly Py_ssize_t value_len
    cdef readonly long long value_int
    cdef bint _reverse
    cdef bint _over
    cdef RaxIterator _nodes
    cdef unsigned long long _master_ms
    cdef unsigned long long _master_seq
    cdef Py_ssize_t _master_count
    cdef Py_ssize_t _master_start
    cdef Py_ssize_t _flags_pos
    cdef Py_ssize_t _pos
    cdef Py_ssize_t _ahead
    cdef Py_ssize_t _field_next
    cdef Py_ssize_t _fields_left
    cpdef bint next_entry(self)
    cpdef bint next_field(self)
    cpdef bint remove_current(self)
    cpdef bint remove_and_stop(self)
    cdef bint open(self, StreamNodes stream, unsigned long long start_ms, unsigned long long start_seq,
                   unsigned long long end_ms, unsigned long long end_seq, bint reverse, NodePlace place)
    cdef bint follow(self, StreamNodes stream, NodePlace place, unsigned long long ms, unsigned long long seq)
    cdef bint mark(self, NodePlace place)
    cdef bint close(self)
    cdef bint skip_fields(self, Py_ssize_t pos)
    cdef bint _seek(self)
    cdef bint _seek_node(self, str operator, bytes key)
    cdef bint _next_node(self)
    cdef bint _is_tail(self, StreamNodes stream) noexcept
    cdef bint _enter_node(self, Listpack lp, unsigned long long ms, unsigned long long seq)
    cdef bint _approach(self, Listpack lp)
    cdef int _scan_forward(self, Listpack lp)
    cdef int _scan_backward(self, Listpack lp)
    cdef bint _read_head(self, Listpack lp, Py_ssize_t pos) except -1
