"""Consuming a group's messages: the commands that the loop messages() sends, one after the other, without I/O.

    delivery            the loop; delivery_options: its options
    prefetch            messages that the loop has read and not handed out yet
    leases, delays      the time for which a message belongs to a consumer; messages that are due later
    atomic_steps        steps that a server must execute as one, in Lua; order_steps and filter_steps: those of
                        order_by and where
    dead_letters        the format of messages that were given up
"""
