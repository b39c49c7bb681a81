from libc.math cimport llrint

from rillet.commands.table_replies cimport write_score
from rillet.protocol.reply_writer cimport ReplyWriter, put_digits

cpdef bint write_distance(ReplyWriter out, double metres)
cpdef bint write_coordinate(ReplyWriter out, double degrees, bint as_score)
