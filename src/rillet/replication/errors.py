"""Errors of the link between a replica and its master."""

from __future__ import annotations

from rillet.errors import CommandError, RilletError


class LinkError(RilletError):
    """The link to the master cannot continue; the message is the reason. The replica tries again."""


class NoMasterLink(CommandError):
    """A replica cannot synchronise now, because its master has no stream to continue; it tries again."""

    prefix = "NOMASTERLINK"
