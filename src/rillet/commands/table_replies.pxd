from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.dict cimport Dict, rillet_prefetch
from rillet.structs.dict_table cimport u64
from rillet.structs.listpack cimport Listpack
from rillet.structs.skiplist cimport Skiplist
from rillet.types.packed_zset cimport score_at
from rillet.types.zset cimport Zset

cpdef bint write_table(ReplyWriter out, Dict table, bint keys, bint values)
cpdef bint write_score(ReplyWriter out, double score, bint classic)
cpdef bint write_range(
    ReplyWriter out, Zset zset, Py_ssize_t start, Py_ssize_t count, bint backwards, bint with_scores, bint classic
)
cdef bint _write_packed(
    ReplyWriter out, Listpack packed, Py_ssize_t start, Py_ssize_t count, bint backwards, bint with_scores, bint classic
)
cdef bint write_entry(ReplyWriter out, Listpack packed, Py_ssize_t pos)
cdef bint write_entries(ReplyWriter out, Listpack packed, Py_ssize_t pos, Py_ssize_t count, Py_ssize_t step)
