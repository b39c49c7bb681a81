cimport cython
from libc.string cimport memcpy
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.lru cimport AccessClock
from rillet.keyspace.memory_usage cimport Ledger
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport GrowthGate, hash_bytes
from rillet.structs.due_times cimport DueTimes
from rillet.types.at_rest cimport awaken, to_rest
from rillet.types.stream.stream cimport Stream
from rillet.types.string cimport String, new_string

cdef int _form_with_expiry(Py_ssize_t key_size, bytes data, int form)

@cython.final
cdef class Watcher:
    cdef public bint dirty
    cdef public list keys
    cdef public set stale

cdef class KeyObserver:
    cdef public object writer
    cdef bint invalidate(self, bytes key, object writer)
    cdef bint invalidate_span(self, const unsigned char *at, Py_ssize_t size)

@cython.final
cdef class Database:
    cdef readonly long index
    cdef public Clock clock
    cdef public AccessClock access
    cdef public Ledger ledger
    cdef public RestBuffer buffer
    cdef public Dict keys
    cdef public Dict expires
    cdef public dict blocking_keys
    cdef public dict ready_keys
    cdef public dict watched_keys
    cdef public dict idmp_keys
    cdef public DueTimes subexpires
    cdef public object on_expired
    cdef public object on_expiry
    cdef public long long notify_before
    cdef public object on_ready
    cdef public object on_missed
    cdef public object on_new
    cdef public object on_overwritten
    cdef public object on_unlinked
    cdef public KeyObserver tracking
    cdef public bint notifies
    cdef public object may_expire
    cdef public object may_delete
    cdef public object lazy
    cdef public bint lazy_server_del
    cdef public bint embeds_expiry
    cdef public long long hits
    cdef public long long misses
    cdef public unsigned long long expires_cursor
    cdef public long long average_ttl
    cdef public list awake
    cdef public list created
    cdef public Py_ssize_t awake_limit
    cdef public Py_ssize_t _first_awake
    cdef public Py_ssize_t _rested
    cdef bint _any_expires(self) noexcept
    cpdef object peek(self, bytes key)
    cpdef object lookup(self, bytes key)
    cpdef object lookup_read(self, bytes key)
    cpdef bint count_read(self, bytes key, bint found)
    cpdef bint touch_access(self, bytes key)
    cpdef bint touch_modified(self, bytes key)
    cpdef Py_ssize_t find(self, bytes key) except -2
    cpdef Py_ssize_t find_read(self, bytes key) except -2
    cpdef Py_ssize_t locate(self, ArgumentSpans words, Py_ssize_t index=*) except -2
    cpdef Py_ssize_t locate_read(self, ArgumentSpans words, Py_ssize_t index=*) except -2
    cpdef Py_ssize_t locate_untouched(self, ArgumentSpans words, Py_ssize_t index=*) except -2
    cdef long long located_expiry(self, ArgumentSpans words) except? -2
    cdef Py_ssize_t _locate(self, ArgumentSpans words, Py_ssize_t index) except -2
    cpdef bint keep_bytes(self, ArgumentSpans words, Py_ssize_t n, Py_ssize_t size)
    cpdef bint keep_object(self, ArgumentSpans words, Py_ssize_t n, object value)
    cdef bint _added(self, ArgumentSpans words, Py_ssize_t n)
    cpdef Py_ssize_t find_untouched(self, bytes key, bint notify=*) except -2
    cpdef object view(self, bytes key)
    cpdef object view_read(self, bytes key)
    cpdef object view_untouched(self, bytes key, bint notify=*)
    cpdef object value_at(self, Py_ssize_t n)
    cpdef object wake(self, bytes key)
    cpdef object unpack(self, ArgumentSpans words, Py_ssize_t n)
    cdef object _wake(self, bytes key, Py_ssize_t n)
    cdef bint _rest(self, Py_ssize_t n)
    cpdef bint rest_oldest(self)
    cpdef bint rest_some(self, Py_ssize_t slots)
    cpdef bint is_expired(self, bytes key)
    cpdef bint expire_if_needed(self, bytes key)
    cpdef list[bytes] expire_entries(self, list due, bint names)
    cdef bint _deleted(self, bytes key)
    cpdef bint set(self, bytes key, object value, bint keep_ttl=*)
    cpdef bint set_string(self, bytes key, bytes data, int form=*, bint keep_ttl=*)
    cdef bint _set_bytes(self, bytes key, bytes rest, bint keep_ttl)
    cdef bint _set_object(self, bytes key, object value, bint keep_ttl)
    cdef bint set_string_span(
        self, const unsigned char *at, Py_ssize_t size, const unsigned char *data, Py_ssize_t length, int form, bint keep_ttl
    )
    cdef bint replace_string_span(
        self, const unsigned char *at, Py_ssize_t size, const unsigned char *data, Py_ssize_t length, int form, bint keep_ttl
    )
    cdef bint _after_set(
        self, const unsigned char *at, Py_ssize_t size, Py_ssize_t n, bint new, object old, bint keep_ttl
    ) except -1
    cpdef bint put(self, bytes key, object value)
    cpdef bint replace_string(self, bytes key, bytes data, bint keep_ttl=*, int form=*)
    cpdef bint tidy(self, Py_ssize_t times)
    cpdef bint delete(self, bytes key, bint lazy=*)
    cpdef bint delete_replaced(self, bytes key)
    cpdef long long get_expire(self, bytes key)
    cpdef bint set_expire(self, bytes key, long long when)
    cdef bint set_expire_span(self, const unsigned char *at, Py_ssize_t size, long long when)
    cdef bint _note_expiry(self, long long when)
    cpdef bint set_due(self, bytes key, object value, long long when)
    cdef bint _register(self, bytes key, long long when)
    cpdef bint persist(self, bytes key)
    cdef bint touch_watchers(self, bytes key)
    cpdef bint touch(self, bytes key, bint by_server=*)
    cpdef bint signal_ready(self, bytes key)
