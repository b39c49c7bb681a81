cimport cython
from rillet.runtime.session cimport Session
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.value cimport Stream

cpdef Stream lookup_write(Session session, bytes key)
cpdef Stream lookup_read(Session session, bytes key)
cpdef long long logged_now(Session session) except -1
cpdef Consumer find_or_create_consumer(Session session, bytes key, Group group, bytes name)
