cimport cython
from rillet.commands.session cimport Session
from rillet.commands.stream_args cimport TrimArguments, find_stream, integer, option, read_id
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport IDReader, format_id, less
