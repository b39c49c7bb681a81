"""The publish and subscribe commands (Redis: pubsub.c); runtime/channels.py has the subscriptions.

SUBSCRIBE and its variants reply with one confirmation per name, an array in RESP2 and a push in RESP3:

    >3  $9 subscribe      $4 news   :2      2: the number of the client's subscriptions
    >3  $12 punsubscribe  _         :0

UNSUBSCRIBE without a subscription replies with a null name. CLIENT REPLY OFF and SKIP do not drop confirmations
and messages. In RESP2 a subscribed client may only run (UN)SUBSCRIBE commands, PING, RESET and QUIT
(runtime/admission.py rejects other commands); in RESP3 it may run all commands. Messages are not logged.
"""

from __future__ import annotations

from rillet.commands.arguments import subcommand_error
from rillet.commands.help_texts import declare_help
from rillet.commands.pubsub import command
from rillet.commands.replies import write_bulks
from rillet.runtime.channels import CHANNEL, PATTERN, SHARD, Channels, Subscriptions
from rillet.runtime.session import Session
from rillet.structs.glob import matches

_LISTEN = "pubsub noscript loading stale"
_LOOK = "pubsub loading stale"
_SPEAK = "pubsub loading stale fast may_replicate"


# -- subscriptions ----------------------------------------------------------------------------------


def _confirm(session: Session, name: bytes | None, kind: int) -> None:
    """Confirm a subscription or its end, with the number of the client's subscriptions (addReplyPubsubSubscribed).

    Channels and patterns are counted together, shard channels separately.
    """
    own = session.subscriptions or Subscriptions()
    count = len(own.shards) if kind == SHARD else len(own.channels) + len(own.patterns)
    word = session.command.name.encode()
    resp2 = session.out.resp == 2
    if name is None:
        shown = b"$-1\r\n" if resp2 else b"_\r\n"
    else:
        shown = b"$%d\r\n%b\r\n" % (len(name), name)
    session.push(b"%b3\r\n$%d\r\n%b\r\n%b:%d\r\n" % (b"*" if resp2 else b">", len(word), word, shown, count))


def _channels(session: Session) -> Channels:
    channels: Channels = session.engine.channels
    return channels


def _subscribe(session: Session, argv: list[bytes], kind: int) -> None:
    """Subscribe the client to the names in argv[1:]."""
    channels = _channels(session)
    for name in argv[1:]:
        channels.subscribe(session, name, kind)
        _confirm(session, name, kind)
    channels.settle(session)


def _unsubscribe(session: Session, argv: list[bytes], kind: int) -> None:
    """Unsubscribe the client from the names in argv[1:]; if there are none, from all names of that kind."""
    channels, own = _channels(session), session.subscriptions or Subscriptions()
    all_names = {CHANNEL: own.channels, PATTERN: own.patterns, SHARD: own.shards}[kind]
    names: list[bytes | None] = [*argv[1:]] or [*all_names] or [None]
    for name in names:
        if name is not None:
            channels.unsubscribe(session, name, kind)
        _confirm(session, name, kind)
    channels.settle(session)


@command("subscribe", arity=-2, flags=_LISTEN, since="2.0.0", syntax="channel [channel ...]",
         complexity="O(N) for N channels")
def subscribe(session: Session, argv: list[bytes]) -> None:
    """Subscribe to channels."""
    _subscribe(session, argv, CHANNEL)


@command("unsubscribe", arity=-1, flags=_LISTEN, since="2.0.0", syntax="[channel [channel ...]]",
         complexity="O(N) for N channels")
def unsubscribe(session: Session, argv: list[bytes]) -> None:
    """Unsubscribe from the given channels, or from all channels."""
    _unsubscribe(session, argv, CHANNEL)


@command("psubscribe", arity=-2, flags=_LISTEN, since="2.0.0", syntax="pattern [pattern ...]",
         complexity="O(N) for N patterns")
def psubscribe(session: Session, argv: list[bytes]) -> None:
    """Subscribe to all channels that match patterns."""
    _subscribe(session, argv, PATTERN)


@command("punsubscribe", arity=-1, flags=_LISTEN, since="2.0.0", syntax="[pattern [pattern ...]]",
         complexity="O(N) for N patterns")
def punsubscribe(session: Session, argv: list[bytes]) -> None:
    """Unsubscribe from the given patterns, or from all patterns."""
    _unsubscribe(session, argv, PATTERN)


@command("ssubscribe", arity=-2, flags=_LISTEN + " not_key", keys=(1, -1, 1), since="7.0.0",
         syntax="shardchannel [shardchannel ...]", complexity="O(N) for N channels")
def ssubscribe(session: Session, argv: list[bytes]) -> None:
    """Subscribe to shard channels."""
    _subscribe(session, argv, SHARD)


@command("sunsubscribe", arity=-1, flags=_LISTEN + " not_key", keys=(1, -1, 1), since="7.0.0",
         syntax="[shardchannel [shardchannel ...]]", complexity="O(N) for N channels")
def sunsubscribe(session: Session, argv: list[bytes]) -> None:
    """Unsubscribe from the given shard channels, or from all shard channels."""
    _unsubscribe(session, argv, SHARD)


# -- messages ---------------------------------------------------------------------------------------


def _reply_count(session: Session, count: int) -> None:
    if session.pushes is not None and not session.engine.settings.compat.knows(72):
        session.flush_pushes()
    session.out.integer(count)


@command("publish", arity=3, flags=_SPEAK, since="2.0.0", syntax="channel message",
         complexity="O(N+M) for N listeners of the channel and M patterns")
def publish(session: Session, argv: list[bytes]) -> None:
    """Send a message to the current subscribers of a channel."""
    _reply_count(session, _channels(session).publish(argv[1], argv[2]))
    session.engine.propagation.add_for_replicas(session.db.index, argv)


@command("spublish", arity=3, flags=_SPEAK + " not_key", keys=(1, 1, 1), since="7.0.0", syntax="shardchannel message",
         complexity="O(N) for N listeners")
def spublish(session: Session, argv: list[bytes]) -> None:
    """Send a message to the current subscribers of a shard channel."""
    _reply_count(session, _channels(session).publish_shard(argv[1], argv[2]))
    session.engine.propagation.add_for_replicas(session.db.index, argv)


# -- introspection ----------------------------------------------------------------------------------------


def _list_names(session: Session, argv: list[bytes], names: list[bytes]) -> None:
    """Reply with all names, or with the names that match a pattern (pubsub.c: channelList)."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    if len(argv) == 3:
        names = [name for name in names if matches(argv[2], name)]
    write_bulks(session.out, names)


def _list_counts(session: Session, argv: list[bytes], table: dict[bytes, dict[Session, None]]) -> None:
    session.out.array(2 * (len(argv) - 2))
    for name in argv[2:]:
        session.out.bulk(name)
        session.out.integer(len(table.get(name, ())))


@command("pubsub|channels", arity=-2, flags=_LOOK, since="2.8.0", syntax="[pattern]", complexity="O(N) for N channels")
def pubsub_channels(session: Session, argv: list[bytes]) -> None:
    """List the channels with subscribers."""
    _list_names(session, argv, list(_channels(session).channels))


@command("pubsub|numsub", arity=-2, flags=_LOOK, since="2.8.0", syntax="[channel [channel ...]]",
         complexity="O(N) for N channels")
def pubsub_numsub(session: Session, argv: list[bytes]) -> None:
    """Return the number of subscribers of each channel, without pattern subscribers."""
    _list_counts(session, argv, _channels(session).channels)


@command("pubsub|numpat", arity=2, flags=_LOOK, since="2.8.0", complexity="O(1)")
def pubsub_numpat(session: Session, argv: list[bytes]) -> None:
    """Return the number of subscribed patterns."""
    session.out.integer(len(_channels(session).patterns))


@command("pubsub|shardchannels", arity=-2, flags=_LOOK, since="7.0.0", syntax="[pattern]",
         complexity="O(N) for N channels")
def pubsub_shardchannels(session: Session, argv: list[bytes]) -> None:
    """List the shard channels with subscribers."""
    _list_names(session, argv, list(_channels(session).shards))


@command("pubsub|shardnumsub", arity=-2, flags=_LOOK, since="7.0.0", syntax="[shardchannel [shardchannel ...]]",
         complexity="O(N) for N channels")
def pubsub_shardnumsub(session: Session, argv: list[bytes]) -> None:
    """Return the number of subscribers of each shard channel."""
    _list_counts(session, argv, _channels(session).shards)


declare_help("pubsub", "pubsub", "6.2.0")
