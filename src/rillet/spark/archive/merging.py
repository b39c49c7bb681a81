"""Chooses the small files of an archive to merge.

A folder (a stream's day) with enough small files has runs of adjacent small files, each at most as large as the target.
Only folders that changed since they were last looked at are looked at, so a commit of a few files costs little however
many files the archive has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rillet.spark.archive.manifest import FileTable, Part


class Mergeable:
    """Finds the files to merge; remembers its arguments, because other ones may select other folders."""

    def __init__(self) -> None:
        self._arguments: tuple[int, int] | None = None

    def runs(self, table: FileTable, least: int, target: int) -> list[list[Part]]:
        """Return lists of adjacent small files to merge, from folders with at least `least` small files.

        O(files of the folders that changed since the last call); with other arguments O(all files)
        """
        if self._arguments != (least, target):
            self._arguments = least, target
            table.changed.update(table.folders())
        mergeable: list[list[Part]] = []
        for folder in sorted(table.changed):
            files = table.in_folder(folder)
            runs: list[list[Part]] = []
            if sum(file.bytes < target // 2 for file in files) >= least:
                runs = list(_runs(sorted(files, key=lambda file: file.first), target))
            if not runs:
                table.changed.discard(folder)
            mergeable += runs
        return mergeable


def _runs(files: Iterable[Part], target: int) -> Iterator[list[Part]]:
    run: list[Part] = []
    for file in files:
        small = file.bytes < target // 2
        same = not run or (run[-1].stream == file.stream and run[-1].values == file.values)
        above = not run or (same and run[-1].last < file.first)
        # `above` is false after a stream was recreated with lower IDs
        if run and (not small or not above or sum(one.bytes for one in run) + file.bytes > target):
            if len(run) > 1:
                yield run
            run = []
        if small:
            run.append(file)
    if len(run) > 1:
        yield run
