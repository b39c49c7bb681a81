cimport cython
from rillet.commands.session cimport Session
from rillet.protocol.feed cimport Feed
from rillet.protocol.parser cimport CommandParser
from rillet.structs.words cimport Words

cdef class Shortcut:
    cpdef Py_ssize_t run(self, Session session, CommandParser parser, Words words, Feed feed, Py_ssize_t limit) except -1
