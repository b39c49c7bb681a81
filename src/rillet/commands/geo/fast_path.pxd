cimport cython

from rillet.commands.geo.replies cimport write_coordinate, write_distance
from rillet.commands.small_values cimport HEADER, MOST_WORDS, NOT_INT, SmallValuePath
from rillet.commands.zset.fast_path cimport ZaddFastPath
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.float_text cimport parse_plain
from rillet.structs.geohash cimport SearchArea, distance, encode, latitude_of, longitude_of
from rillet.structs.listpack cimport Listpack
from rillet.types.packed_zset cimport score_at

@cython.final
cdef class GeoaddFastPath(ZaddFastPath):
    cdef ArgumentSpans _call

cdef class GeoFastPath(SmallValuePath):
    cdef double _score
    cdef Dict _table
    cdef bint _find_set(self, Database db, ArgumentSpans words) except -1
    cdef bint _find_score(self, Database db, ArgumentSpans words, Py_ssize_t i) except -1

@cython.final
cdef class GeodistFastPath(GeoFastPath):
    pass

cdef double unit_of(ArgumentSpans words, Py_ssize_t index) except -1

@cython.final
cdef class GeosearchFastPath(GeoFastPath):
    cdef SearchArea _area
    cdef Py_ssize_t _count
    cdef bint _sorted
    cdef bint _descending
    cdef int _with
    cdef bint _parse(self, Database db, ArgumentSpans words) except -1
    cdef bint _has_ties(self, Py_ssize_t count) except -1
    cdef bint _reply(self, Session session, Dict table, Py_ssize_t count) except -1

@cython.final
cdef class GeoposFastPath(GeoFastPath):
    pass

cpdef object members_with_scores(list argv, Py_ssize_t first)
