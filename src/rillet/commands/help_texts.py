"""The texts of the HELP subcommands, as the servers of the protocol reply them; redis-cli and suites show or read them.

    =CLIENT                  the container; its lines follow
     GETNAME                 a line of every server
    v   * NAME <client-name> a line of some servers, which its first character selects:

    n  since 7.2, and in Valkey     4  since 7.4     5  since 7.4, and in Valkey     o  before 7.4
    r  in Redis                     v  in Valkey

Each reply has a first and a last line that all containers share (networking.c: addReplyHelp). Tests compare the replies
with those of the servers.
"""

from __future__ import annotations

from functools import lru_cache

from rillet.runtime.session import Session
from rillet.types.compat import Compat

_TEXTS = """\
=ACL
 CAT [<category>]
     List all commands that belong to <category>, or all command categories
     when no category is specified.
 DELUSER <username> [<username> ...]
     Delete a list of users.
 DRYRUN <username> <command> [<arg> ...]
     Returns whether the user can execute the given command without executing the command.
 GETUSER <username>
     Get the user's details.
 GENPASS [<bits>]
     Generate a secure 256-bit user password. The optional `bits` argument can
     be used to specify a different size.
 LIST
     Show users details in config file format.
 LOAD
     Reload users from the ACL file.
 LOG [<count> | RESET]
     Show the ACL log entries.
 SAVE
     Save the current config to the ACL file.
rSETUSER <username> <attribute> [<attribute> ...]
r    Create or modify a user with the specified attributes.
vSETUSER <username> <rule> [<rule> ...]
v    Create or modify a user with the specified rules.
 USERS
     List all the registered usernames.
 WHOAMI
     Return the current connection username.
=CLIENT
 CACHING (YES|NO)
     Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.
vCAPA <option> [options...]
v    The client claims its some capability options. Options are:
v    * REDIRECT
v      The client can handle redirection during primary and replica failover in standalone mode.
 GETREDIR
     Return the client ID we are redirecting to when tracking is enabled.
 GETNAME
     Return the name of the current connection.
 ID
     Return the ID of the current connection.
 INFO
     Return information about the current client connection.
 KILL <ip:port>
     Kill connection made from <ip:port>.
 KILL <option> <value> [<option> <value> [...]]
     Kill connections. Options are:
     * ADDR (<ip:port>|<unixsocket>:0)
r      Kill connections made from the specified address
v      Kill connections made from the specified address.
     * LADDR (<ip:port>|<unixsocket>:0)
r      Kill connections made to specified local address
r    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
v      Kill connections made to the specified local address.
v    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)
       Kill connections by type.
     * USER <username>
       Kill connections authenticated by <username>.
     * SKIPME (YES|NO)
       Skip killing current connection (default: yes).
4    * ID <client-id>
4      Kill connections by client id.
v    * ID <client-id> [<client-id>...]
v      Kill connections by client IDs.
5    * MAXAGE <maxage>
5      Kill connections older than the specified age.
v    * FLAGS <flags>
v      Kill connections that include the specified flags.
v    * NAME <client-name>
v      Kill connections with the specified name.
v    * IDLE <idle>
v      Kill connections with idle time greater than or equal to <idle> seconds.
v    * LIB-NAME <library-name>
v      Kill connections with the specified library name.
v    * LIB-VER <library-version>
v      Kill connections with the specified library version.
v    * DB <db-id>
v      Kill connections currently operating on the specified database ID.
v    * CAPA <capa>
v      Kill connections currently with the specified capa.
v    * IP <ip>
v      Kill connections made from the specified ip.
 LIST [options ...]
     Return information about client connections. Options:
r    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
v    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)
       Return clients of specified type.
v    * USER <username>
v      Return clients authenticated by <username>.
v    * ADDR <ip:port>
v      Return clients connected from the specified address.
v    * LADDR <ip:port>
v      Return clients connected to the specified local address.
v    * ID <client-id> [<client-id>...]
v      Return clients with the specified IDs.
v    * SKIPME (YES|NO)
v      Exclude the current client from the list (default: no).
v    * MAXAGE <maxage>
v      List connections older than the specified age.
v    * FLAGS <flags>
v      Return clients with the specified flags.
v    * NAME <client-name>
v      Return clients with the specified name.
v    * IDLE <idle>
v      Return clients with idle time greater than or equal to <idle> seconds.
v    * LIB-NAME <lib-name>
v      Return clients with the specified lib name.
v    * LIB-VER <lib-version>
v      Return clients with the specified lib version.
v    * DB <db-id>
v      Return clients currently operating on the specified database ID.
v    * CAPA <capa>
v      Return connections currently with the specified capa.
v    * IP <ip>
v      Return connections made from the specified ip.
 UNPAUSE
     Stop the current client pause, resuming traffic.
 PAUSE <timeout> [WRITE|ALL]
     Suspend all, or just write, clients for <timeout> milliseconds.
 REPLY (ON|OFF|SKIP)
     Control the replies sent to the current connection.
 SETNAME <name>
     Assign the name <name> to the current connection.
nSETINFO <option> <value>
n    Set client meta attr. Options are:
n    * LIB-NAME: the client lib name.
n    * LIB-VER: the client lib version.
 UNBLOCK <clientid> [TIMEOUT|ERROR]
     Unblock the specified blocked client.
 TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
          [OPTIN] [OPTOUT] [NOLOOP]
     Control server assisted client side caching.
 TRACKINGINFO
     Report tracking status for the current connection.
 NO-EVICT (ON|OFF)
     Protect current client connection from eviction.
nNO-TOUCH (ON|OFF)
n    Will not touch LRU/LFU stats when this mode is on.
vIMPORT-SOURCE (ON|OFF)
v    Mark this connection as an import source if import-mode is enabled.
v    Sync tools can set their connections into 'import-source' state to visit
v    expired keys.
=COMMAND
 (no subcommand)
r    Return details about all Redis commands.
v    Return details about all commands.
 COUNT
r    Return the total number of commands in this Redis server.
v    Return the total number of commands in this server.
 LIST
r    Return a list of all commands in this Redis server.
v    Return a list of all commands in this server.
 INFO [<command-name> ...]
r    Return details about multiple Redis commands.
v    Return details about multiple commands.
     If no command names are given, documentation details for all
     commands are returned.
 DOCS [<command-name> ...]
r    Return documentation details about multiple Redis commands.
v    Return documentation details about multiple commands.
     If no command names are given, documentation details for all
     commands are returned.
 GETKEYS <full-command>
r    Return the keys from a full Redis command.
v    Return the keys from a full command.
 GETKEYSANDFLAGS <full-command>
r    Return the keys and the access flags from a full Redis command.
v    Return the keys and the access flags from a full command.
=COMMANDLOG
 GET <count> <type>
     Return top <count> entries of the specified <type> from the commandlog (-1 mean all).
     Entries are made of:
     id, timestamp,
         time in microseconds for type of slow,
         or size in bytes for type of large-request,
         or size in bytes for type of large-reply
     arguments array, client IP and port,
     client name
 LEN <type>
     Return the length of the specified type of commandlog.
 RESET <type>
     Reset the specified type of commandlog.
=CONFIG
 GET <pattern>
     Return parameters matching the glob-like <pattern> and their values.
 SET <directive> <value>
     Set the configuration <directive> to <value>.
 RESETSTAT
     Reset statistics reported by the INFO command.
 REWRITE
     Rewrite the configuration file.
=FUNCTION
 LOAD [REPLACE] <FUNCTION CODE>
     Create a new library with the given library name and code.
 DELETE <LIBRARY NAME>
     Delete the given library.
 LIST [LIBRARYNAME PATTERN] [WITHCODE]
     Return general information on all the libraries:
     * Library name
     * The engine used to run the Library
o    * Library description
     * Functions list
     * Library code (if WITHCODE is given)
     It also possible to get only function that matches a pattern using LIBRARYNAME argument.
 STATS
     Return information about the current function running:
     * Function name
     * Command used to run the function
     * Duration in MS that the function is running
     If no function is running, return nil
     In addition, returns a list of available engines.
 KILL
     Kill the current running function.
 FLUSH [ASYNC|SYNC]
     Delete all the libraries.
     When called without the optional mode argument, the behavior is determined by the
     lazyfree-lazy-user-flush configuration directive. Valid modes are:
     * ASYNC: Asynchronously flush the libraries.
     * SYNC: Synchronously flush the libraries.
 DUMP
     Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command
 RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]
     Restore the libraries represented by the given payload, it is possible to give a restore policy to
     control how to handle existing libraries (default APPEND):
     * FLUSH: delete all existing libraries.
     * APPEND: appends the restored libraries to the existing libraries. On collision, abort.
     * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old
       libraries with the new libraries (notice that even on this option there is a chance of failure
       in case of functions name collision with another library).
=HOTKEYS
 START <METRICS count [CPU] [NET]> [COUNT k] [DURATION duration] [SAMPLE ratio] [SLOTS count slot...]
     Starts hotkeys tracking with specified metrics.
     * METRICS count [CPU] [NET]
         Specify count of metrics and choose amongst:
         - CPU: Track hotkeys by CPU time percentage
         - NET: Track hotkeys by network bytes percentage
     * COUNT k
         Specifies the value of K for the top-K hotkeys tracking. Default: 10
     * DURATION duration
         Specifies tracking duration in seconds. 0 means tracking will continue until manually stopped. Default: 0
     * SAMPLE ratio
         Keys are tracked with probability 1/ratio. Default: 1 (tracks every key)
     * SLOTS count slot...
         Specify which slots to track keys from. Only available in cluster mode. Default: empty (track all slots)
 STOP
     Stop hotkeys tracking. Results are still available via GET
 GET
     Get results from hotkeys tracking.
 RESET
     Reset memory used for hotkeys tracking. Tracking must have been stopped.
     Results will no longer be available after this command.
=LATENCY
 DOCTOR
     Return a human readable latency analysis report.
 GRAPH <event>
     Return an ASCII latency graph for the <event> class.
 HISTORY <event>
     Return time-latency samples for the <event> class.
 LATEST
     Return the latest latency samples for all events.
 RESET [<event> ...]
     Reset latency data of one or more <event> classes.
     (default: reset all data for all event classes)
 HISTOGRAM [COMMAND ...]
     Return a cumulative distribution of latencies in the format of a histogram for the specified command names.
     If no commands are specified then all histograms are replied.
=MEMORY
 DOCTOR
     Return memory problems reports.
 MALLOC-STATS
     Return internal statistics report from the memory allocator.
 PURGE
     Attempt to purge dirty pages for reclamation by the allocator.
 STATS
     Return information about the memory usage of the server.
 USAGE <key> [SAMPLES <count>]
     Return memory in bytes used by <key> and its value. Nested values are
     sampled up to <count> times (default: 5, 0 means sample all).
=MODULE
 LIST
     Return a list of loaded modules.
 LOAD <path> [<arg> ...]
     Load a module library from <path>, passing to it any optional arguments.
 LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]
     Load a module library from <path>, while passing it module configurations and optional arguments.
 UNLOAD <name>
     Unload a module.
=OBJECT
 ENCODING <key>
     Return the kind of internal representation used in order to store the value
     associated with a <key>.
 FREQ <key>
     Return the access frequency index of the <key>. The returned integer is
     proportional to the logarithm of the recent access frequency of the key.
 IDLETIME <key>
     Return the idle time of the <key>, that is the approximated number of
     seconds elapsed since the last access to the key.
 REFCOUNT <key>
     Return the number of references of the value associated with the specified
     <key>.
=PUBSUB
 CHANNELS [<pattern>]
     Return the currently active channels matching a <pattern> (default: '*').
 NUMPAT
     Return number of subscriptions to patterns.
 NUMSUB [<channel> ...]
     Return the number of subscribers for the specified channels, excluding
     pattern subscriptions(default: no channels).
 SHARDCHANNELS [<pattern>]
     Return the currently active shard level channels matching a <pattern> (default: '*').
 SHARDNUMSUB [<shardchannel> ...]
     Return the number of subscribers for the specified shard level channel(s)
=SCRIPT
rDEBUG (YES|SYNC|NO)
r    Set the debug mode for subsequent scripts executed.
vDEBUG (YES|SYNC|NO) [<engine_name>]
v    Set the debug mode for subsequent scripts executed of the specified engine.
v    Default engine name: 'lua'
 EXISTS <sha1> [<sha1> ...]
     Return information about the existence of the scripts in the script cache.
 FLUSH [ASYNC|SYNC]
     Flush the Lua scripts cache. Very dangerous on replicas.
r    When called without the optional mode argument, the behavior is determined by the
r    lazyfree-lazy-user-flush configuration directive. Valid modes are:
v    When called without the optional mode argument, the behavior is determined
v     by the lazyfree-lazy-user-flush configuration directive. Valid modes are:
     * ASYNC: Asynchronously flush the scripts cache.
     * SYNC: Synchronously flush the scripts cache.
 KILL
     Kill the currently executing Lua script.
 LOAD <script>
     Load a script into the scripts cache without executing it.
vSHOW <sha1>
v    Show a script from the scripts cache.
=SLOWLOG
 GET [<count>]
     Return top <count> entries from the slowlog (default: 10, -1 mean all).
     Entries are made of:
     id, timestamp, time in microseconds, arguments array, client IP and port,
     client name
 LEN
     Return the length of the slowlog.
 RESET
     Reset the slowlog.
=XGROUP
 CREATE <key> <groupname> <id|$> [option]
     Create a new consumer group. Options are:
     * MKSTREAM
       Create the empty stream if it does not exist.
     * ENTRIESREAD entries_read
       Set the group's entries_read counter (internal use).
 CREATECONSUMER <key> <groupname> <consumer>
     Create a new consumer in the specified group.
 DELCONSUMER <key> <groupname> <consumer>
     Remove the specified consumer.
 DESTROY <key> <groupname>
     Remove the specified group.
 SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]
     Set the current group ID and entries_read counter.
=XINFO
 CONSUMERS <key> <groupname>
     Show consumers of <groupname>.
 GROUPS <key>
     Show the stream consumer groups.
 STREAM <key> [FULL [COUNT <count>]
     Show information about the stream.
"""


def _shown(mark: str, compat: Compat) -> bool:
    """Return whether a server has the lines of this mark."""
    if mark in "rv":
        return compat.valkey == (mark == "v")
    if mark in "45":
        return compat.knows(74) or (compat.valkey and mark == "5")
    if mark == "o":
        return not compat.knows(74) and not compat.valkey
    return mark == " " or compat.knows(72)


@lru_cache(maxsize=64)
def _lines(container: str, compat: Compat) -> list[bytes]:
    """Return the lines of a container's help between the first line and HELP."""
    found: list[bytes] = []
    here = False
    for line in _TEXTS.splitlines():
        if line[0] == "=":
            here = line[1:] == container
        elif here and _shown(line[0], compat):
            found.append(line[1:].encode())
    return found


def write_help(session: Session, word: bytes, container: str) -> None:
    """Reply with the help of a container, which the client named with `word`."""
    compat = session.engine.settings.compat
    lines = _lines(container.upper(), compat)
    session.out.array(len(lines) + 3)
    session.out.simple(word.upper() + b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
    for line in lines:
        session.out.simple(line)
    session.out.simple(b"HELP")
    session.out.simple(b"    Print this help." if compat.knows(72) else b"    Prints this help.")


__all__ = ["write_help"]
