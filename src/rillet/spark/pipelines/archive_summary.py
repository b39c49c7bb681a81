"""What a run that writes to an archive reports, and how long it waits for another one."""

from __future__ import annotations

from dataclasses import dataclass

from rillet.units import counted

WAIT = 60.0  # seconds to wait for another process that is writing to the archive


@dataclass
class ArchiveSummary:
    """The result of an archive run: numbers of entries, files, commits and lost entries."""

    entries: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    trimmed: int = 0
    merged: int = 0
    into: int = 0
    removed: int = 0  # Entries that the retention has removed from the archive.
    vacuumed: int = 0  # Files of a Delta table that no version needs any more.
    lost: int = 0  # Entries that were certainly removed before they were archived.
    unsure: bool = False  # Whether more entries may have been lost.
    trims: bool = False  # Whether trimming was requested.

    def line(self, to: object) -> str:
        """Return the counts of an archive run as one line of text."""
        text = f"{to}: {counted(self.entries, 'entry', 'entries')} archived in {counted(self.files, 'file')}"
        text += f" ({self.bytes / 1e6:,.1f} MB)"
        if self.trims:
            text += f", {self.trimmed:,} trimmed" if self.trimmed else ", nothing trimmed"
        if self.merged:
            text += f", {counted(self.merged, 'small file')} merged into {self.into:,}"
        if self.removed:
            text += f", {counted(self.removed, 'old entry', 'old entries')} removed from the archive"
        if self.lost:
            text += f", {'at least ' * self.unsure}{counted(self.lost, 'entry', 'entries')} lost before archiving"
        elif self.unsure:
            text += ", entries may have been lost before archiving"
        return text
