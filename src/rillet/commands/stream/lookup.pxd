cimport cython
from rillet.keyspace.database cimport Database
from rillet.runtime.session cimport Session
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.stream cimport Stream

cpdef Stream lookup_write(Session session, bytes key)
cpdef Stream lookup_read(Session session, bytes key)
cdef Stream stream_at(Database db, Py_ssize_t n)
cpdef long long logged_now(Session session) except -1
cpdef Consumer find_or_create_consumer(Session session, bytes key, Group group, bytes name)
