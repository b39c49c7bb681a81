"""Access control: users, their permissions, and the log of denied calls (Redis: acl.c).

    session.account ──► User               name, flags (on, nopass), SHA-256 of each password
                         └─ Selector       root, then one for each `( ... )`; one selector must permit the whole call
                             ├─ command bits     a number; bit n: the command at position n of the CommandSet
                             ├─ first arguments  `+select|0`
                             ├─ key patterns     with read, write or both
                             ├─ channel patterns
                             └─ databases        Valkey

    categories.py        the categories of a command
    commands.py          CommandSet: which position a command has, and the commands of each category
    selector.py          one selector: applies a rule, describes itself, decides about a call
    user.py              a user: applies a rule, describes itself, decides about a call
    key_access.py        the keys of a call, and whether it reads or writes each of them
    command_decision.py  what a user's rules say about all calls of a command, so that a permitted call is cheap
    file.py              the lines of an aclfile, and `user` lines of a redis.conf
    log.py               ACL LOG
    control.py           AccessControl: the users of one engine, and what happens to sessions when they change

Most sessions belong to a user with all permissions. Such a session lacks the flag RESTRICTED (session_state.py), and
the engine does not call this package. Nothing here does input or output.
"""
