cpdef bint matches(bytes pattern, bytes text, bint ignore_case=*) except -1
cpdef bint matches_any(list[bytes] patterns, bytes text) except -1
