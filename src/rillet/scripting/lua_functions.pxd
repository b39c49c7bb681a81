# The functions of Lua 5.1 that rillet uses, by their signatures.
ctypedef int (*c_function)(void *) noexcept nogil
ctypedef int (*of_index)(void *, int) noexcept nogil
ctypedef int (*of_two)(void *, int, int) noexcept nogil
ctypedef int (*of_three)(void *, int, int, int) noexcept nogil
ctypedef void (*put_nothing)(void *) noexcept nogil
ctypedef void (*put_int)(void *, int) noexcept nogil
ctypedef void (*put_two)(void *, int, int) noexcept nogil
ctypedef void (*put_number)(void *, double) noexcept nogil
ctypedef void (*put_string)(void *, const unsigned char *, size_t) noexcept nogil
ctypedef void (*put_pointer)(void *, void *) noexcept nogil
ctypedef void (*put_closure)(void *, c_function, int) noexcept nogil
ctypedef void (*put_name)(void *, int, const char *) noexcept nogil
ctypedef double (*get_double)(void *, int) noexcept nogil
ctypedef void *(*get_pointer)(void *, int) noexcept nogil
ctypedef size_t (*get_size)(void *, int) noexcept nogil
ctypedef const unsigned char *(*get_string)(void *, int, size_t *) noexcept nogil

cdef struct LuaFunctions:
    c_function gettop
    put_int settop
    put_int remove
    of_index type
    of_index checkstack
    put_nothing pushnil
    put_number pushnumber
    put_string pushlstring
    put_int pushboolean
    put_pointer pushlightuserdata
    put_closure pushcclosure
    put_two createtable
    put_int pushvalue
    put_int rawset
    of_index next
    get_size objlen
    put_two rawgeti
    put_two rawseti
    put_name setfield
    get_string tolstring
    get_double tonumber
    of_index toboolean
    get_pointer touserdata
    of_three pcall
    c_function error
    of_two gc
    of_index ref
