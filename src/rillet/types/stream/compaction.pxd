cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.stream.id cimport delta, encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.node cimport entry_before, int_at, master_fields, size_at
from rillet.types.stream.stream cimport Stream


@cython.final
cdef class StreamCompactor:
    cdef readonly Stream stream
    cdef readonly bytes position
    cdef readonly Py_ssize_t nodes
    cdef readonly Py_ssize_t moved
    cdef readonly Py_ssize_t freed
    cdef readonly Py_ssize_t total
    cdef readonly Py_ssize_t wasted
    cdef readonly Py_ssize_t rax_freed
    cdef readonly Py_ssize_t rax_wasted
    cdef bytes _limit
    cdef long long _max_bytes
    cdef long long _max_entries
    cdef Listpack _out
    cdef bytes _out_key
    cdef unsigned long long _out_ms
    cdef unsigned long long _out_seq
    cdef long long _out_entries
    cdef long long _living
    cdef bint _grown
    cdef unsigned long long _last_ms
    cdef unsigned long long _last_seq
    cdef list _new
    cdef list _new_keys
    cpdef bint measure(self, Py_ssize_t count)
    cpdef bint step(self, long long node_max_bytes, long long node_max_entries)
    cdef bint _close_all(self)
    cdef bint _remove(self, bytes key, Listpack lp)
    cdef bint _forget(self, bytes key)
    cdef bint _is_worth_moving(self, bytes key, Listpack lp, long long living, long long deleted, bint last)
    cdef bint _open_preceding(self, bytes key, Listpack lp, Py_ssize_t size, long long count)
    cdef bint _rewrite(self, bytes key, Listpack lp)
    cdef bint _move_entries(self, bytes key, Listpack lp)
    cdef bint _has_names(self, Listpack out, Listpack lp, Py_ssize_t names, Py_ssize_t names_end,
                         Py_ssize_t nfields)
    cdef bint _is_full(self, Py_ssize_t size)
    cdef bint _start_node(self, Listpack lp, Py_ssize_t names, Py_ssize_t names_end, Py_ssize_t nfields,
                          unsigned long long ms, unsigned long long seq)
    cdef bint _append_id(self, long long flags, unsigned long long ms, unsigned long long seq)
    cdef bint _append_body(self, Listpack lp, long long flags, bint same, Py_ssize_t names, Py_ssize_t body,
                           Py_ssize_t end, Py_ssize_t count)
    cdef bint _finish_node(self)


cpdef Py_ssize_t list_slack(object children)
cpdef Py_ssize_t wasted_bytes(Listpack lp)
