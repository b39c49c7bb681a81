from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.scripting.lua_api cimport lua

cdef bint write_plain(void *state, int index, ReplyWriter out, int resp, int depth)
cdef bint _write_list(void *state, int index, ReplyWriter out, int resp, int depth)
cdef bint _write_status(void *state, int index, ReplyWriter out)
