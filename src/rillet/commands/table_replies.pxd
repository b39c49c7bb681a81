from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.dict cimport Dict, rillet_prefetch
from rillet.structs.dict_table cimport u64
from rillet.structs.skiplist cimport Skiplist

cpdef bint write_table(ReplyWriter out, Dict table, bint keys, bint values) except -1
cpdef bint write_score(ReplyWriter out, double score, bint classic) except -1
cpdef bint write_range(
    ReplyWriter out, Dict table, Skiplist skiplist, Py_ssize_t start, Py_ssize_t count,
    bint backwards, bint with_scores, bint classic
) except -1
