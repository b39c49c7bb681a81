"""CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: the options of client-side caching (Redis: networking.c).

runtime/tracking.py has the table of cached keys and sends the messages.
"""

from __future__ import annotations

from itertools import pairwise

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.connection import command
from rillet.commands.replies import ReplySet, write_tree
from rillet.errors import CommandError
from rillet.runtime.client_line import redirection
from rillet.runtime.session import Session
from rillet.runtime.tracking import ClientTracking

_CONNECTION_FLAGS = "noscript loading stale"
_OPTIONS = (b"bcast", b"optin", b"optout", b"noloop")
_OFF = ClientTracking()


def _parse(session: Session, argv: list[bytes]) -> tuple[int, set[bytes], list[bytes]]:
    """Return the redirection (0: none), the options and the prefixes of CLIENT TRACKING."""
    redirect, options, prefixes = 0, set(), []
    at = 3
    while at < len(argv):
        option = argv[at].lower()
        if option == b"redirect" and at + 1 < len(argv):
            at += 1
            if redirect:
                raise CommandError("A client can only redirect to a single other client")
            redirect = integer(argv[at])
            if redirect not in session.engine.sessions:
                raise CommandError("The client ID you want redirect to does not exist")
        elif option == b"prefix" and at + 1 < len(argv):
            at += 1
            prefixes.append(argv[at])
        elif option in _OPTIONS:
            options.add(option)
        else:
            raise syntax_error()
        at += 1
    return redirect, options, prefixes


def _check(state: ClientTracking, options: set[bytes], prefixes: list[bytes]) -> None:
    """Raise an error if the options contradict each other or the client's present ones."""
    bcast, optin, optout = b"bcast" in options, b"optin" in options, b"optout" in options
    if prefixes and not bcast:
        raise CommandError("PREFIX option requires BCAST mode to be enabled")
    if state.on and state.bcast != bcast:
        raise CommandError("You can't switch BCAST mode on/off before disabling tracking for this client, and then "
                           "re-enabling it with a different mode.")  # fmt: skip
    if bcast and (optin or optout):
        raise CommandError("OPTIN and OPTOUT are not compatible with BCAST")
    if optin and optout:
        raise CommandError("You can't specify both OPTIN mode and OPTOUT mode")
    if (optin and state.optout) or (optout and state.optin):
        raise CommandError("You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then "
                           "re-enabling it with a different mode.")  # fmt: skip


def _any_overlap(state: ClientTracking, prefixes: list[bytes]) -> bool:
    """Return whether any prefix overlaps with another: then two neighbours in sorted order do. O(n log n)"""
    ordered = sorted([*state.prefixes, *prefixes])
    return any(after.startswith(before) for before, after in pairwise(ordered))


def _overlap(state: ClientTracking, prefixes: list[bytes]) -> tuple[int, str]:
    """Return the position of the first prefix that overlaps with another, and the error; -1 if none overlaps."""
    if not prefixes or not _any_overlap(state, prefixes):
        return -1, ""
    for at, prefix in enumerate(prefixes):
        rivals = [(one, "an existing") for one in sorted(state.prefixes)]
        rivals += [(one, "another provided") for one in prefixes[at + 1 :]]
        for rival, kind in rivals:
            if rival.startswith(prefix) or prefix.startswith(rival):
                return (0 if kind == "an existing" else at), (
                    f"Prefix '{text(prefix)}' overlaps with {kind} prefix '{text(rival)}'. "
                    "Prefixes for a single client must not overlap."
                )
    return -1, ""


@command("client|tracking", arity=-3, flags=_CONNECTION_FLAGS, since="6.0.0",
         syntax="<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
         complexity="O(1). Some options may introduce additional complexity.")
def client_tracking(session: Session, argv: list[bytes]) -> None:
    """Turn the invalidation messages of client-side caching on or off."""
    redirect, options, prefixes = _parse(session, argv)
    tracking = session.engine.tracking
    state: ClientTracking = session.tracking or _OFF
    mode = argv[2].lower()
    if mode == b"on":
        _check(state, options, prefixes)
        at, overlap = _overlap(state, prefixes)
        if at >= 0:
            # Up to 8.6 Redis replies the error and OK, and turns tracking on, unless the first prefix is one of the
            # two (tracking.c: checkPrefixCollisionsOrReply returns the position, which is also "true").
            compat = session.engine.settings.compat
            if at == 0 or compat.knows(88) or compat.valkey:
                raise CommandError(overlap)
            session.reply_error(session.out.mark(), CommandError(overlap))
        tracking.enable(session, redirect, options, prefixes)
    elif mode == b"off":
        tracking.disable(session)
    else:
        raise syntax_error()
    session.out.ok()


@command("client|caching", arity=3, flags=_CONNECTION_FLAGS, since="6.0.0", syntax="<YES | NO>", complexity="O(1)")
def client_caching(session: Session, argv: list[bytes]) -> None:
    """Track the keys of the next command (OPTIN), or do not track them (OPTOUT)."""
    state: ClientTracking = session.tracking or _OFF
    if not state.on:
        raise CommandError("CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
                           "OPTOUT mode enabled")  # fmt: skip
    answer = argv[2].lower()
    if answer == b"yes":
        if not state.optin:
            raise CommandError("CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
    elif answer == b"no":
        if not state.optout:
            raise CommandError("CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
    else:
        raise syntax_error()
    state.caching = True
    session.out.ok()


@command("client|getredir", arity=2, flags=_CONNECTION_FLAGS, since="6.0.0", complexity="O(1)")
def client_getredir(session: Session, argv: list[bytes]) -> None:
    """Return the ID of the connection that receives the invalidation messages; 0: this one, -1: tracking is off."""
    session.out.integer(redirection(session))


@command("client|trackinginfo", arity=2, flags=_CONNECTION_FLAGS, since="6.2.0", complexity="O(1)")
def client_trackinginfo(session: Session, argv: list[bytes]) -> None:
    """Show the options of tracking, the redirection and the prefixes of this connection."""
    state: ClientTracking = session.tracking or _OFF
    flags = [b"on" if state.on else b"off"]
    for is_set, name in (
        (state.bcast, b"bcast"), (state.optin, b"optin"), (state.optin and state.caching, b"caching-yes"),
        (state.optout, b"optout"), (state.optout and state.caching, b"caching-no"), (state.noloop, b"noloop"),
        (state.broken, b"broken_redirect"),
    ):  # fmt: skip
        if is_set:
            flags.append(name)
    write_tree(session.out, {
        b"flags": ReplySet(flags), b"redirect": redirection(session), b"prefixes": sorted(state.prefixes),
    })  # fmt: skip
