"""AccessControl: the users of one engine, and what happens to sessions when users change.

    event                                     effect
    a session begins, RESET                   user `default`; authenticated if `default` is on and needs no password
    AUTH, HELLO AUTH                          another user; authenticated
    rules of a user change                    its sessions get or lose RESTRICTED; sessions with subscriptions that are
                                              not permitted any more are closed
    `default` gets a password                 sessions that were authenticated stay so
    a user is deleted                         its sessions are closed
    ACL LOAD                                  the same, for users that the file lacks

`check` decides about a call. The engine calls it for sessions with the flag RESTRICTED only: before a command is
queued or runs, again when EXEC runs it, and, since Redis 7.2, when the command of a blocked client continues. Where
many calls pass, the engine first calls `User.surely_permits`, which creates no object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet._cython import cython, readonly
from rillet.errors import CommandError, NoPerm, WrongPass
from rillet.runtime.acl.commands import CommandSet, command_set
from rillet.runtime.acl.file import read_users
from rillet.runtime.acl.log import AUTH, REASONS, TLS_CERTIFICATE, AclLog
from rillet.runtime.acl.rules import RuleError, UnmatchedParenthesis, c_string, has_blanks, merged
from rillet.runtime.acl.user import DENIED_COMMAND, DENIED_DATABASE, DENIED_KEY, User, may_keep
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.runtime.session_state import AUTHENTICATED, IN_MULTI, RESTRICTED, RUNNING, UNAUTHENTICATED
from rillet.structs.argument_spans import ArgumentSpans

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

Words = ArgumentSpans | list[bytes]
_RESTRICTED = cython.declare(cython.int, RESTRICTED)
DEFAULT = b"default"
TOPLEVEL = b"toplevel"
MULTI = b"multi"
SCRIPT = b"lua"
MODULE = b"module"
_ALL_PERMISSIONS = (b"+@all", b"~*", b"&*", b"on", b"nopass")
# Words of EXEC about a queued command that is not permitted any more (multi.c).
_REASONS_OF_EXEC = {
    DENIED_COMMAND: "no permission to execute the command or subcommand",
    DENIED_KEY: "no permission to touch the specified keys",
    DENIED_DATABASE: "no permission",
}


def _text(raw: bytes) -> str:
    return c_string(raw).decode("utf-8", "surrogateescape")


@cython.final
@cython.cclass
class AccessControl:
    """The users of one engine by name, and the log of denied calls."""

    __slots__ = ("_commands", "_engine", "_made_for", "_password", "_spans", "default", "log", "users")
    users: readonly[dict[bytes, User]]
    default: readonly[User]
    log: readonly[AclLog]
    _engine: CommandEngine
    _commands: CommandSet | None
    _made_for: tuple[Any, ...]
    _password: str
    _spans: ArgumentSpans

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self._commands = None
        self._made_for = ()
        # The words of a call that comes as a list.
        self._spans = ArgumentSpans()
        self.log = AclLog(engine)
        self.users = {}
        self.default = self._new_default()
        self.users[DEFAULT] = self.default
        self._password = ""
        self.take_settings()

    # -- the commands --------------------------------------------------------------------------------

    def commands(self) -> CommandSet:
        """Return the commands that rules can name now."""
        modules = None if self._engine.modules is None else self._engine.modules.commands
        compat = self._engine.settings.compat
        now = (compat, 0 if modules is None else tuple(modules))
        if self._commands is None or self._made_for != now:
            commands = command_set(compat, self._engine.settings.databases)
            self._commands = commands.with_modules(modules) if modules else commands
            self._made_for = now
        return self._commands

    def commands_changed(self) -> None:
        """Apply the rules of all users again, after a module was loaded or unloaded."""
        commands = self.commands()
        for user in self.users.values():
            user.use(commands)
            self._mark_sessions(user)

    # -- settings ------------------------------------------------------------------------------------

    @property
    def all_channels(self) -> bool:
        """True if new selectors permit all channels (acl-pubsub-default)."""
        return bool(self._engine.settings.acl_pubsub_default == "allchannels")

    def take_settings(self) -> None:
        """Follow changes of the commands, and give the user `default` the password `requirepass` if it has changed."""
        if self._commands is not None and self.commands() is not self.default.commands:
            self.commands_changed()
        password: str = self._engine.settings.requirepass
        if password != self._password:
            self._password = password
            secret = b">" + password.encode("utf-8", "surrogateescape") if password else b"nopass"
            self.default.apply((b"resetpass", secret), self.all_channels)
            self._changed(self.default)

    def _new_default(self) -> User:
        user = User(DEFAULT, self.commands(), False)
        user.apply(_ALL_PERMISSIONS, False)
        return user

    # -- sessions ------------------------------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Make a session one of the user `default` (networking.c: clientSetDefaultAuth)."""
        session.account = self.default
        self._mark(session, self.default.enabled and self.default.no_password)

    def _mark(self, session: Session, authenticated: bool) -> None:
        """Set the flags of a session that depend on its user."""
        needed = not (self.default.no_password and self.default.enabled)
        session.enter("authenticate" if authenticated else "log out")
        if needed and not authenticated:
            session.enter("require password")
        session.enter("restrict" if session.account.restricted else "permit all")

    def log_in(self, session: Session, name: bytes, password: bytes) -> None:
        """Make a session one of a user, or record the failure and raise WrongPass (ACLAuthenticateUser)."""
        user = self.users.get(name)
        if user is None or not user.accepts(password):
            self.log.add(session, AUTH, self._context(session), session.argv[0], name)
            raise WrongPass()
        session.account = user
        self._mark(session, True)

    def log_in_by_certificate(self, session: Session, names: list[bytes]) -> bytes:
        """Make a new session one of the first enabled user that its TLS certificate names; return the name or b""."""
        for name in names:
            user = self.users.get(name)
            if user is not None and user.enabled:
                session.account = user
                self._mark(session, True)
                return name
        if names:
            self.log.add(session, TLS_CERTIFICATE, TOPLEVEL, b"", names[len(names) - 1])
        return b""

    def take_over(self, session: Session, successor: Session) -> None:
        """Make a session one of another session's user."""
        successor.account = session.account
        self._mark(successor, session.state & AUTHENTICATED != 0)

    def _context(self, session: Session) -> bytes:
        return MULTI if session.state & IN_MULTI else TOPLEVEL

    def _log_out(self, session: Session) -> None:
        """Take the user away from a session and close it (deauthenticateAndCloseClient)."""
        session.account = self.default
        self._mark(session, False)
        session.enter("close")
        if session.transport is not None and not session.state & RUNNING:
            session.transport.close()

    def _sessions(self, user: User | None = None) -> list[Session]:
        """Return the sessions of a user, or of all users."""
        sessions = self._engine.sessions.values()
        return [one for one in sessions if one.account is not None and (user is None or one.account is user)]

    def _mark_sessions(self, user: User) -> None:
        sessions = self._sessions(None if user is self.default else user)
        for session in sessions:
            self._mark(session, session.state & AUTHENTICATED != 0)

    def _changed(self, user: User) -> None:
        """Update the sessions after a change of a user."""
        self._mark_sessions(user)

    def _close_deaf(self, user: User, left: list[bytes]) -> None:
        """Close the sessions of a user whose subscriptions are not among the channels that are left."""
        for session in self._sessions(user):
            if session.subscriptions and not may_keep(left, session.subscriptions):
                session.enter("close")
                if session.transport is not None and not session.state & RUNNING:
                    session.transport.close()

    # -- users ---------------------------------------------------------------------------------------

    def set_user(self, name: bytes, words: list[bytes]) -> None:
        """Create or change a user; if one rule is invalid, change nothing (ACL SETUSER)."""
        if has_blanks(name):
            raise CommandError("Usernames can't contain spaces or null characters")
        user = self.users.get(name)
        changed = User(name, self.commands(), self.all_channels) if user is None else user.copy()
        try:
            changed.apply(self._rules(words), self.all_channels)
        except UnmatchedParenthesis as error:
            start = _text(words[error.at])
            raise CommandError(f"Unmatched parenthesis in acl selector starting at '{start}'.") from None
        except RuleError as error:
            raise CommandError(f"Error in ACL SETUSER modifier '{_text(error.args[1])}': {error.args[0]}") from None
        if user is None:
            self.users[name] = changed
            return
        left = changed.lost_channels(user)
        user.copy_from(changed)
        if left is not None:
            self._close_deaf(user, left)
        self._changed(user)

    def delete_user(self, name: bytes) -> bool:
        """Delete a user and close its sessions; return whether the user existed."""
        user = self.users.pop(name, None)
        if user is None:
            return False
        for session in self._sessions(user):
            self._log_out(session)
        return True

    def lines(self) -> list[bytes]:
        """Return the users as lines of an ACL file, sorted by name."""
        return [b"user " + name + b" " + self.users[name].describe() for name in sorted(self.users)]

    def load(self, text: bytes, file_name: str) -> None:
        """Replace the users by those of an ACL file; CommandError lists all mistakes (ACLLoadFromFile)."""
        users = read_users(text, file_name, self.commands(), self.all_channels)
        self._replace(users)

    def _rules(self, words: list[bytes]) -> list[bytes]:
        return merged(words, not self._engine.settings.compat.knows(72))

    def add_configured(self, name: bytes, words: list[bytes]) -> None:
        """Create a user from a `user` line of redis.conf; RuleError (ACLLoadConfiguredUsers)."""
        user = self.users.get(name)
        if user is None:
            user = self.users[name] = User(name, self.commands(), self.all_channels)
        else:
            user.reset(self.all_channels)
        user.apply(self._rules(words), self.all_channels)
        self._changed(user)

    def _replace(self, users: dict[bytes, User]) -> None:
        old = self.users
        fresh = users.pop(DEFAULT, None) or self._new_default()
        left = {name: user.lost_channels(old[name]) for name, user in users.items() if name in old}
        self.default.copy_from(fresh)
        self.users = {DEFAULT: self.default, **users}
        compat = self._engine.settings.compat
        keeps = compat.valkey or compat.knows(74)
        for session in self._sessions():
            name = session.account.name
            if session.account is self.default:
                continue
            user = self.users.get(name)
            deaf = session.subscriptions and left.get(name) is not None and not may_keep(
                left[name] or [], session.subscriptions)  # fmt: skip
            if user is None or deaf or not keeps:
                self._log_out(session)
            else:
                session.account = user
        self._mark_sessions(self.default)

    # -- decisions -----------------------------------------------------------------------------------

    @cython.ccall
    def surely_permits(self, session: Session, entry: Command, words: Words) -> cython.bint:
        """Return True if the session may run a call; about another call, `denial` decides."""
        if not session.state & _RESTRICTED:
            return True
        user: User = session.account
        return user.surely_permits(entry, self._spans_of(words))

    def denial(self, session: Session, entry: Command, words: Words) -> tuple[int, int]:
        """Return why the session may not run a call, and the word to blame; (0, 0) if it may."""
        if self.surely_permits(session, entry, words):
            return 0, 0
        found: tuple[int, int] = session.account.denial(entry, self._spans_of(words), self._database(session))
        return found

    @cython.cfunc
    def _spans_of(self, words: Words) -> ArgumentSpans:
        """Return the words of a call as spans, which are valid until the next call."""
        if isinstance(words, ArgumentSpans):
            return words
        self._spans.point_to(words, 0, len(words))
        return self._spans

    def _database(self, session: Session) -> int:
        """Return the number of the database in which a call would run: inside MULTI, after the queued SELECTs."""
        number: int = session.db.index
        if session.state & IN_MULTI and not all(selector.all_dbs for selector in session.account.selectors):
            for entry, argv in session.queue:
                if entry.fullname == "select" and argv[1].isdigit() and int(argv[1]) < len(self._engine.databases):
                    number = int(argv[1])
        return number

    def record(self, session: Session, entry: Command, words: Words, denied: tuple[int, int], context: bytes) -> None:
        """Add a denied call to the log."""
        reason, at = denied
        by_name = reason == DENIED_COMMAND or (reason == DENIED_DATABASE and at == 0)
        item = entry.fullname.encode() if by_name else self._spans_of(words).get(at)
        self.log.add(session, REASONS[reason], context, item, session.account.name)

    @cython.ccall
    def check(self, session: Session, entry: Command, words: Words) -> cython.bint:
        """Raise NoPerm if the session may not run a call."""
        if self.surely_permits(session, entry, words):
            return True
        denied = self.denial(session, entry, words)
        if denied[0]:
            session.command, session.argv = entry, self._spans_of(words).to_list()
            self.record(session, entry, words, denied, self._context(session))
            raise NoPerm(self._text_of(session.account, entry, denied))
        return True

    def _text_of(self, user: User, entry: Command, denied: tuple[int, int]) -> str:
        """Return the text of NOPERM for a call at the top level."""
        reason, _ = denied
        new = self._engine.settings.compat.knows(72)
        if reason == DENIED_COMMAND:
            subject = f"User {_text(user.name)}" if new else "this user"
            return f"{subject} has no permissions to run the '{entry.fullname}' command"
        if reason == DENIED_DATABASE:
            return "No permissions to access database"
        what = "key" if reason == DENIED_KEY else "channel"
        if new:
            return f"No permissions to access a {what}"
        return f"this user has no permissions to access one of the {what}s used as arguments"

    def exec_error(self, session: Session, entry: Command, words: Words) -> NoPerm | None:
        """Return the error for a queued command that EXEC may not run, else None."""
        denied = self.denial(session, entry, words)
        if not denied[0]:
            return None
        self.record(session, entry, words, denied, MULTI)
        reason = _REASONS_OF_EXEC.get(denied[0], "no permission to access one of the channels used as arguments")
        return NoPerm(
            "ACLs rules changed between the moment the transaction was accumulated and the EXEC call. "
            f"This command is no longer allowed for the following reason: {reason}"
        )

    def script_error(
        self, session: Session, entry: Command, words: Words, client: Session | None = None
    ) -> CommandError | None:
        """Return the error for a call from a script, else None (script.c: scriptVerifyACL).

        client: the session that runs the script, for the log.
        """
        denied = self.denial(session, entry, words)
        if not denied[0]:
            return None
        self.record(client or session, entry, words, denied, SCRIPT)
        if self._engine.settings.compat.knows(72):
            return CommandError("ACL failure in script: " + self._text_of(session.account, entry, denied))
        reason = {
            DENIED_COMMAND: "can't run this command or subcommand",
            DENIED_KEY: "can't access at least one of the keys mentioned in the command arguments",
        }.get(denied[0], "can't publish to the channel mentioned in the command")
        return CommandError(f"The user executing the script {reason}")

    def dry_run(self, user: User, entry: Command, argv: list[bytes], session: Session) -> str:
        """Return why a user may not run a call, "" if the user may (ACL DRYRUN)."""
        reason, at = user.denial(entry, self._spans_of(argv), self._database(session))
        if not reason:
            return ""
        subject = f"User {_text(user.name)}" if self._engine.settings.compat.knows(72) else "This user"
        if reason == DENIED_COMMAND:
            return f"{subject} has no permissions to run the '{entry.fullname}' command"
        if reason == DENIED_DATABASE:
            return f"{subject} has no permissions to access database {_text(argv[at])}"
        what = "key" if reason == DENIED_KEY else "channel"
        return f"{subject} has no permissions to access the '{_text(argv[at])}' {what}"

    def reads_every_key(self, session: Session, entry: Command, argv: list[bytes]) -> bool:
        """Return whether the session may run the call and read all keys (SORT with BY or GET)."""
        if not session.state & RESTRICTED:
            return True
        return bool(session.account.reads_every_key(entry, self._spans_of(argv), session.db.index))

    def check_state(self) -> None:
        """Assert that the flags of the sessions agree with their users."""
        required = not (self.default.no_password and self.default.enabled)
        assert self.users[DEFAULT] is self.default
        for session in self._sessions():
            assert session.account is self.users.get(session.account.name) or session.closing
            assert (session.state & RESTRICTED != 0) == session.account.restricted
            locked = required and not session.state & AUTHENTICATED
            assert (session.state & UNAUTHENTICATED != 0) == locked
