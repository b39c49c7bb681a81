cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.group cimport Group
from rillet.types.stream.pending cimport PendingTable
from rillet.types.stream.id cimport delta, encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.iterator cimport StreamIterator, StreamNodes
from rillet.types.stream.node cimport (
    append_entry, count_deleted, entry_before, first_entry, int_at, mark_deleted, master_fields, new_node, size_at
)


@cython.final
cdef class Stream(StreamNodes):
    cdef public unsigned long long last_ms
    cdef public unsigned long long last_seq
    cdef public unsigned long long first_ms
    cdef public unsigned long long first_seq
    cdef public unsigned long long max_deleted_ms
    cdef public unsigned long long max_deleted_seq
    cdef public unsigned long long entries_added
    cdef readonly dict groups
    cdef readonly PendingTable pending
    cdef public object idmp
    cdef readonly unsigned long long next_ms
    cdef readonly unsigned long long next_seq
    cdef readonly unsigned long long edge_ms
    cdef readonly unsigned long long edge_seq
    cdef readonly bint stopped
    cdef bint trim_living
    cdef Py_ssize_t trim_pos
    cdef readonly unsigned long long stop_ms
    cdef readonly unsigned long long stop_seq
    cdef readonly unsigned long long unread_ms
    cdef readonly unsigned long long unread_seq
    cpdef bint next_id(self, unsigned long long now)
    cpdef bint next_seq_of(self, unsigned long long ms)
    cpdef bint append(self, list[bytes] argv, Py_ssize_t start, Py_ssize_t nfields, unsigned long long ms,
                      unsigned long long seq, long long node_max_bytes, long long node_max_entries)
    cpdef bint add(self, ArgumentSpans words, Py_ssize_t start, Py_ssize_t nfields, unsigned long long ms,
                   unsigned long long seq, long long node_max_bytes, long long node_max_entries)
    cpdef bint delete(self, unsigned long long ms, unsigned long long seq)
    cpdef bint delete_unsettled(self, unsigned long long ms, unsigned long long seq)
    cpdef bint settle_first(self)
    cpdef long long trim_maxlen(self, unsigned long long maxlen, bint approx, long long limit, int delete_strategy=*)
    cpdef long long trim_minid(self, unsigned long long ms, unsigned long long seq, bint approx, long long limit,
                               int delete_strategy=*)
    cpdef bint contains(self, unsigned long long ms, unsigned long long seq)
    cpdef bint edge(self, bint first, bint skip_tombstones)
    cpdef bint has_tombstones_from(self, unsigned long long ms, unsigned long long seq, int rule=*)
    cpdef long long distance_from_first(self, unsigned long long ms, unsigned long long seq, int rule=*)
    cpdef Group create_group(self, bytes name, unsigned long long ms, unsigned long long seq, long long entries_read)
    cpdef Group find_group(self, bytes name)
    cpdef bint destroy_group(self, bytes name)
    cpdef bint find_unread(self)
    cpdef bint is_held(self, unsigned long long ms, unsigned long long seq)
    cpdef bint tidy_pending(self)
    cpdef Py_ssize_t drop_references(self, unsigned long long ms, unsigned long long seq)
    cpdef bint advance_group(self, Group group, unsigned long long ms, unsigned long long seq,
                             int rule=*)
    cpdef bint add_node(self, bytes key, Listpack lp)
    cdef bint _is_full(self, Listpack lp, Py_ssize_t total, long long node_max_bytes,
                       long long node_max_entries) except -1
    cdef Listpack _start_node(self, ArgumentSpans words, Py_ssize_t start, Py_ssize_t nfields, unsigned long long ms,
                              unsigned long long seq, long long node_max_bytes)
    cdef bint _count_up(self, Listpack lp) except -1
    cdef long long _trim_head(self, bint by_id, unsigned long long maxlen, unsigned long long ms,
                              unsigned long long seq, bint approx, long long limit)
    cdef long long _trim_all(self, bint by_id, unsigned long long maxlen, unsigned long long ms,
                             unsigned long long seq, long long limit, int delete_strategy)
    cdef bint _stop_at(self, bytes key)
    cdef bint _ends_before(self, Listpack lp, bytes key, unsigned long long ms, unsigned long long seq)
    cdef long long _trim_node(self, Listpack lp, bytes key, Py_ssize_t pos, bint by_id, unsigned long long maxlen,
                              unsigned long long ms, unsigned long long seq, int delete_strategy)
    cdef bint _all_ahead(self, Group group)
