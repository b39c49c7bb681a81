"""A model test of every kind of store: random calls, interrupted in every way, and one law.

    python -m tests.model --rounds 10000                  all kinds in turn
    python -m tests.model --kind attached --seed 42       one round again: what a failure prints

A round opens no store: it uses the store of its kind (kinds.py) with keys of its own. Actors (actors.py) make random
calls (operations.py) at the same time: threads, asyncio tasks, a thread whose calls are interrupted, the main thread
with signal handlers, a forked child, other processes. The owner of the directory, or the server, may be killed
meanwhile. Each call is recorded before it begins and after it ends (history.py). Then one transaction reads the keys,
and the law (law.py) compares them with the recorded calls:

    each acknowledged write is present once       one whose outcome is unknown at most once, a rejected one never
    transactions are whole                        all of their writes, or none
    each delivered message is pending or acknowledged, and a consumer that claims everything gets the rest
    no reply reaches another call                 each write has a unique value; each read expects the values of its own
    no call waits forever                         a watchdog prints the stack of each thread and ends the process
    the files have the same data                  after the last round of a store, they are opened again

A seed repeats the calls of each actor and the places of the interruptions. How the actors interleave depends on the
machine, so a failure may need several runs of its seed.
"""
