"""The bytes of a value as trees of annotated spans, in the words of docs/formats.

    span         Span, and the elements of a page of bytes
    listpack     header, elements (encoding, data, backlen), end
    stream_node  the roles of the elements of a stream's node: master entry, flags, deltas, lp-count, tombstones
    intset       header and integers
    payload      a DUMP payload: type, parts, footer; the listpacks in it
    tree         a rax over keys, as a tree to draw
"""
