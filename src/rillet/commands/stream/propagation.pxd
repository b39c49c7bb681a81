cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport to_signed
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.id cimport format_id

cpdef bint log_claim(Session session, bytes key, Group group, bytes ident, Py_ssize_t slot, bytes last=*)
cpdef bint log_claims(Session session, bytes key, Group group, list slots, bytes last)
cpdef bint log_group_id(Session session, bytes key, Group group)
cpdef bint log_consumer(Session session, bytes key, Group group, Consumer consumer)
cpdef bint log_ack(Session session, bytes key, Group group, bytes ident)
