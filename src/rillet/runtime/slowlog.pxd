cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.protocol.command_parser cimport CommandParser
from rillet.protocol.reply_writer cimport ReplyWriter, count_digits
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.engine_stats cimport EngineStats
from rillet.structs.argument_spans cimport ArgumentSpans

cdef Py_ssize_t request_size(ArgumentSpans words) noexcept

@cython.final
cdef class LoggedCommand:
    cdef readonly long long number
    cdef readonly long long time
    cdef readonly long long value
    cdef readonly bytes words
    cdef readonly bytes address
    cdef readonly bytes name

@cython.final
cdef class CommandLogList:
    cdef readonly list entries
    cdef readonly long long least
    cdef readonly Py_ssize_t most
    cdef long long _next_number
    cdef Py_ssize_t _newest
    cdef LoggedCommand _next(self)

@cython.final
cdef class CommandLog:
    cdef object _engine
    cdef Clock _clock
    cdef EngineStats _statistics
    cdef ReplyWriter _text
    cdef long long _client
    cdef bytes _address
    cdef Py_ssize_t _most_words
    cdef Py_ssize_t _longest
    cdef readonly dict logs
    cdef readonly bint each
    cdef readonly long long slow_ns
    cdef readonly long long large
    cdef long long _monitored_ns
    cdef public object hotkeys
    cdef CommandLogList _slow
    cdef CommandLogList _requests
    cdef CommandLogList _replies
    cdef bint record(self, Session session, Command entry, ArgumentSpans words, long long nanoseconds, long long reply)
    cpdef bint record_list(self, Session session, Command entry, list[bytes] argv, long long nanoseconds)
    cdef bint record_longest(self, Session session, Command entry, bytes received, long long nanoseconds)
    cdef bint _record(self, Session session, Command entry, ArgumentSpans words, long long nanoseconds, long long request, long long reply)
    cdef bint _add(self, CommandLogList log, Session session, ArgumentSpans words, long long value)
    cdef bytes _shortened(self, ArgumentSpans words)
