cimport cython
from libc.math cimport asin, atan2, cos, fabs, sin, sqrt
from libc.string cimport memcpy
from rillet.structs.dict cimport Dict
from rillet.structs.skiplist cimport Skiplist

cdef unsigned long long score_bits(double score) noexcept
cdef double lowest_longitude(unsigned long long bits, int step) noexcept
cdef double lowest_latitude(unsigned long long bits, int step) noexcept
cdef double highest_longitude(unsigned long long bits, int step) noexcept
cdef double highest_latitude(unsigned long long bits, int step) noexcept
cpdef double longitude_of(double score) noexcept
cpdef double latitude_of(double score) noexcept
cpdef unsigned long long encode(double longitude, double latitude, int step=*, double most=*) noexcept
cpdef bytes geohash_text(double score)
cpdef double distance(double lon1, double lat1, double lon2, double lat2, double near=*) noexcept

@cython.final
cdef class SearchArea:
    cdef readonly int kind
    cdef public double longitude
    cdef public double latitude
    cdef public double unit
    cdef public double near
    cdef readonly double width
    cdef readonly double height
    cdef readonly list points
    cdef bytearray found
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t limit
    cdef double _lows[9]
    cdef double _highs[9]
    cdef double _west
    cdef double _east
    cdef double _south
    cdef double _north
    cdef double _lon
    cdef double _lat
    cdef double _distance
    cpdef bint by_radius(self, double radius)
    cpdef bint by_box(self, double width, double height)
    cpdef bint by_polygon(self, list points)
    cdef bint _bound(self)
    cdef bint _bound_polygon(self)
    cdef double _reach(self) noexcept
    cdef double low(self, int cell) noexcept
    cdef double high(self, int cell) noexcept
    cpdef int find_cells(self)
    cdef bint offer(self, double score, Py_ssize_t entry)
    cpdef bint collect(self, Skiplist skiplist, Dict table)
    cdef bint order(self, bint descending)
    cdef double distance_at(self, Py_ssize_t index) noexcept
    cdef double score_at(self, Py_ssize_t index) noexcept
    cpdef Py_ssize_t entry_at(self, Py_ssize_t index) noexcept
    cdef bint _covers(self, unsigned long long bits, int step)
    cpdef bint contains(self, double score)
    cdef bint _in_polygon(self)
