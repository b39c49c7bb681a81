"""Publish and subscribe: the commands (Redis: pubsub.c). The subscriptions are in runtime/channels.py.

SUBSCRIBE and its variants reply with one confirmation per name, an array in RESP2 and a push in RESP3:

    >3  $9 subscribe    $4 news   :2        the number of the client's subscriptions: channels and
    >3  $12 punsubscribe  _       :0        patterns together, shard channels separately

UNSUBSCRIBE without a subscription replies too, with a null name. CLIENT REPLY OFF and SKIP do not drop confirmations
and messages. In RESP2 a subscribed client may only run (UN)SUBSCRIBE commands, PING, RESET and QUIT
(runtime/admission.py refuses the others); in RESP3 it may run any command. Messages are not logged.
"""

from __future__ import annotations

from rillet.commands.arguments import subcommand_error
from rillet.commands.help import reply_help
from rillet.runtime.channels import CHANNEL, PATTERN, SHARD, Channels
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled

_LISTEN = "pubsub noscript loading stale"
_LOOK = "pubsub loading stale"
_SPEAK = "pubsub loading stale fast may_replicate"


# -- subscriptions ----------------------------------------------------------------------------------


def _confirm(session: Session, word: bytes, name: bytes | None, count: int) -> None:
    """Confirm a subscription or its end, with the number of subscriptions (addReplyPubsubSubscribed)."""
    resp2 = session.out.resp == 2
    if name is None:
        told = b"$-1\r\n" if resp2 else b"_\r\n"
    else:
        told = b"$%d\r\n%b\r\n" % (len(name), name)
    session.push(b"%b3\r\n$%d\r\n%b\r\n%b:%d\r\n" % (b"*" if resp2 else b">", len(word), word, told, count))


def _count(session: Session) -> int:
    """Return the number of subscribed channels and patterns (clientSubscriptionsCount)."""
    own = session.subscriptions
    return 0 if own is None else len(own.channels) + len(own.patterns)


def _shard_count(session: Session) -> int:
    """Return the number of subscribed shard channels (clientShardSubscriptionsCount)."""
    own = session.subscriptions
    return 0 if own is None else len(own.shards)


def _channels(session: Session) -> Channels:
    channels: Channels = session.engine.channels
    return channels


@command("subscribe", arity=-2, flags=_LISTEN, group="pubsub", since="2.0.0",
         complexity="O(N) for N channels", syntax="channel [channel ...]")
def subscribe(session: Session, argv: list[bytes]) -> None:
    """Subscribe to channels."""
    channels = _channels(session)
    for name in argv[1:]:
        channels.subscribe(session, name, CHANNEL)
        _confirm(session, b"subscribe", name, _count(session))
    channels.settle(session)


@command("unsubscribe", arity=-1, flags=_LISTEN, group="pubsub", since="2.0.0",
         complexity="O(N) for N channels", syntax="[channel [channel ...]]")
def unsubscribe(session: Session, argv: list[bytes]) -> None:
    """Unsubscribe from channels, or from all."""
    channels, own = _channels(session), session.subscriptions
    names: list[bytes | None] = [*argv[1:]] or [*(own.channels if own is not None else ())] or [None]
    for name in names:
        if name is not None:
            channels.unsubscribe(session, name, CHANNEL)
        _confirm(session, b"unsubscribe", name, _count(session))
    channels.settle(session)


@command("psubscribe", arity=-2, flags=_LISTEN, group="pubsub", since="2.0.0",
         complexity="O(N) for N patterns", syntax="pattern [pattern ...]")
def psubscribe(session: Session, argv: list[bytes]) -> None:
    """Subscribe to all channels that match patterns."""
    channels = _channels(session)
    for pattern in argv[1:]:
        channels.subscribe(session, pattern, PATTERN)
        _confirm(session, b"psubscribe", pattern, _count(session))
    channels.settle(session)


@command("punsubscribe", arity=-1, flags=_LISTEN, group="pubsub", since="2.0.0",
         complexity="O(N) for N patterns", syntax="[pattern [pattern ...]]")
def punsubscribe(session: Session, argv: list[bytes]) -> None:
    """Unsubscribe from patterns, or from all."""
    channels, own = _channels(session), session.subscriptions
    patterns: list[bytes | None] = [*argv[1:]] or [*(own.patterns if own is not None else ())] or [None]
    for pattern in patterns:
        if pattern is not None:
            channels.unsubscribe(session, pattern, PATTERN)
        _confirm(session, b"punsubscribe", pattern, _count(session))
    channels.settle(session)


@command("ssubscribe", arity=-2, flags=_LISTEN + " not_key", keys=(1, -1, 1), group="pubsub", since="7.0.0",
         complexity="O(N) for N channels", syntax="shardchannel [shardchannel ...]")
def ssubscribe(session: Session, argv: list[bytes]) -> None:
    """Subscribe to shard channels."""
    channels = _channels(session)
    for name in argv[1:]:
        channels.subscribe(session, name, SHARD)
        _confirm(session, b"ssubscribe", name, _shard_count(session))
    channels.settle(session)


@command("sunsubscribe", arity=-1, flags=_LISTEN + " not_key", keys=(1, -1, 1), group="pubsub", since="7.0.0",
         complexity="O(N) for N channels", syntax="[shardchannel [shardchannel ...]]")
def sunsubscribe(session: Session, argv: list[bytes]) -> None:
    """Unsubscribe from shard channels, or from all."""
    channels, own = _channels(session), session.subscriptions
    names: list[bytes | None] = [*argv[1:]] or [*(own.shards if own is not None else ())] or [None]
    for name in names:
        if name is not None:
            channels.unsubscribe(session, name, SHARD)
        _confirm(session, b"sunsubscribe", name, _shard_count(session))
    channels.settle(session)


# -- messages ---------------------------------------------------------------------------------------


def _reply_count(session: Session, count: int) -> None:
    if session.pushes is not None and not session.engine.settings.compat.knows(72):
        session.flush_pushes()
    session.out.integer(count)


@command("publish", arity=3, flags=_SPEAK, group="pubsub", since="2.0.0",
         complexity="O(N+M) for N listeners of the channel and M patterns", syntax="channel message")
def publish(session: Session, argv: list[bytes]) -> None:
    """Send a message to the current subscribers of a channel."""
    _reply_count(session, _channels(session).publish(argv[1], argv[2]))


@command("spublish", arity=3, flags=_SPEAK + " not_key", keys=(1, 1, 1), group="pubsub", since="7.0.0",
         complexity="O(N) for N listeners", syntax="shardchannel message")
def spublish(session: Session, argv: list[bytes]) -> None:
    """Send a message to the current subscribers of a shard channel."""
    _reply_count(session, _channels(session).publish_shard(argv[1], argv[2]))


# -- introspection ----------------------------------------------------------------------------------------


def _list_names(session: Session, argv: list[bytes], names: list[bytes]) -> None:
    """Reply with the names, or those that match a pattern (pubsub.c: channelList)."""
    if len(argv) > 3:
        raise subcommand_error("PUBSUB", argv)
    if len(argv) == 3:
        glob = compiled(argv[2])
        names = [name for name in names if glob.matches(name)]
    session.out.array(len(names))
    for name in names:
        session.out.bulk(name)


def _list_counts(session: Session, argv: list[bytes], table: dict[bytes, dict[Session, None]]) -> None:
    session.out.array(2 * (len(argv) - 2))
    for name in argv[2:]:
        session.out.bulk(name)
        session.out.integer(len(table.get(name, ())))


@command("pubsub|channels", arity=-2, flags=_LOOK, group="pubsub", since="2.8.0",
         complexity="O(N) for N channels", syntax="[pattern]")
def pubsub_channels(session: Session, argv: list[bytes]) -> None:
    """List the channels with subscribers."""
    _list_names(session, argv, list(_channels(session).channels))


@command("pubsub|numsub", arity=-2, flags=_LOOK, group="pubsub", since="2.8.0",
         complexity="O(N) for N channels", syntax="[channel [channel ...]]")
def pubsub_numsub(session: Session, argv: list[bytes]) -> None:
    """Return the number of subscribers of channels, without pattern subscribers."""
    _list_counts(session, argv, _channels(session).channels)


@command("pubsub|numpat", arity=2, flags=_LOOK, group="pubsub", since="2.8.0", complexity="O(1)")
def pubsub_numpat(session: Session, argv: list[bytes]) -> None:
    """Return the number of subscribed patterns."""
    session.out.integer(len(_channels(session).patterns))


@command("pubsub|shardchannels", arity=-2, flags=_LOOK, group="pubsub", since="7.0.0",
         complexity="O(N) for N channels", syntax="[pattern]")
def pubsub_shardchannels(session: Session, argv: list[bytes]) -> None:
    """List the shard channels with subscribers."""
    _list_names(session, argv, list(_channels(session).shards))


@command("pubsub|shardnumsub", arity=-2, flags=_LOOK, group="pubsub", since="7.0.0",
         complexity="O(N) for N channels", syntax="[shardchannel [shardchannel ...]]")
def pubsub_shardnumsub(session: Session, argv: list[bytes]) -> None:
    """Return the number of subscribers of shard channels."""
    _list_counts(session, argv, _channels(session).shards)


@command("pubsub|help", arity=2, flags="loading stale", group="pubsub", since="6.2.0", complexity="O(1)")
def pubsub_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "pubsub")
