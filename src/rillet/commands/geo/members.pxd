cimport cython
from rillet.commands.geo.replies cimport write_coordinate, write_distance
from rillet.commands.zset.members cimport add_members, score_of
from rillet.commands.zset.values cimport zset_at
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.geohash cimport distance, encode, latitude_of, longitude_of
from rillet.types.zset cimport Zset

cdef double near(Database db) noexcept
cdef bint check_position(double longitude, double latitude)
cdef double unit_of(ArgumentSpans words, Py_ssize_t at) except -1

@cython.final
cdef class Geoadd(Implementation):
    cdef ArgumentSpans _call

@cython.final
cdef class Geopos(Implementation):
    pass

@cython.final
cdef class Geodist(Implementation):
    pass
