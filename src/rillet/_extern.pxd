# C macros and functions that Cython does not declare.
cdef extern from "Python.h":
    bint PyCFunction_Check(object function)
    void* PyCFunction_GetFunction(object function) except? NULL

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000
    #define rillet_hash_bytes(at, size) Py_HashBuffer((at), (size))
    #else
    #define rillet_hash_bytes(at, size) _Py_HashBytes((at), (size))
    #endif
    """
    Py_hash_t rillet_hash_bytes(const void *at, Py_ssize_t size) noexcept

cdef extern from *:
    """
    #define rillet_prefetch_item(chunk, index) rillet_prefetch(PyList_GET_ITEM((chunk), (index)))
    #if defined(__GNUC__)
    #define rillet_prefetch(at) __builtin_prefetch(at)
    #else
    #define rillet_prefetch(at) ((void)(at))
    #endif
    """
    void rillet_prefetch(const void *at) noexcept
    void rillet_prefetch_item(list chunk, Py_ssize_t index) noexcept
