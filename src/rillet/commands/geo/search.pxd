cimport cython
from rillet.commands.geo.members cimport check_position, near, unit_of
from rillet.commands.geo.replies cimport write_coordinate, write_distance
from rillet.commands.table_replies cimport write_entry
from rillet.commands.zset.members cimport score_of
from rillet.commands.zset.values cimport zset_at
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.geohash cimport SearchArea, latitude_of, longitude_of
from rillet.structs.listpack cimport Listpack
from rillet.structs.sorting cimport partial_order
from rillet.types.packed_zset cimport score_at
from rillet.types.zset cimport Zset

@cython.final
cdef class Geosearch(Implementation):
    cdef SearchArea _area
    cdef int _form
    cdef bint _may_store
    cdef bint _any
    cdef long long _count
    cdef bint _sorted
    cdef bint _descending
    cdef Py_ssize_t _store_at
    cdef bint _store_distances
    cdef int _wanted
    cdef Dict _table
    cdef Listpack _packed
    cdef list _picked
    cdef bint _parse(self, Session session, ArgumentSpans words, Zset value)
    cdef bint _read_position(self, Session session, ArgumentSpans words, Py_ssize_t at)
    cdef bint _read_member(self, Session session, ArgumentSpans words, Py_ssize_t at, Zset value)
    cdef bint _read_radius(self, Session session, ArgumentSpans words, Py_ssize_t at)
    cdef bint _read_box(self, Session session, ArgumentSpans words, Py_ssize_t at)
    cdef Py_ssize_t _read_polygon(self, Session session, ArgumentSpans words, Py_ssize_t at)
    cdef Py_ssize_t _find(self, Zset value)
    cdef bint _collect(self, Zset value)
    cdef bint _has_ties(self, Py_ssize_t count)
    cdef Py_ssize_t _record(self, Py_ssize_t i)
    cdef bint _reply(self, Session session, Py_ssize_t count)
    cdef bint _store(self, Session session, ArgumentSpans words, Py_ssize_t count)
