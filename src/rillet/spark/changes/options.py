"""The options of format("rillet.changes")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rillet.client.address import Address
from rillet.replication.changes import ChangePosition
from rillet.spark.option_types import boolean, names, non_empty, one_of, whole_number
from rillet.spark.options import READ, ConnectionOptions, OptionError, declared, option, read_values, server_problems

LATEST, SNAPSHOT = "latest", "snapshot"
NO_FOLDER = (
    "folder is missing: it keeps the received changes until their batch is committed. Give a folder that the driver "
    "and all executors reach, such as one beside the checkpoint; Spark does not tell a source where the checkpoint is"
)


def starting(text: str) -> str:
    """Check the value of startingOffsets: latest, snapshot or a position."""
    if text.lower() in (LATEST, SNAPSHOT):
        return text.lower()
    try:
        return str(ChangePosition.parse(text))
    except ValueError:
        raise ValueError("expected latest, snapshot or a position: <replication ID>:<offset>:<database>") from None


@dataclass(frozen=True)
class ChangesOptions(ConnectionOptions):
    """The checked options; small, because Spark sends them with every task."""

    folder: str = option(non_empty, READ, "")
    starting_offsets: str = option(starting, READ, LATEST)
    keys: tuple[str, ...] | None = option(names, READ)
    fail_on_data_loss: bool = option(boolean, READ, True)
    max_bytes_per_trigger: int | None = option(whole_number(1), READ)
    file_bytes: int = option(whole_number(1024), READ, 8 << 20)
    batch_rows: int = option(whole_number(1), READ, 10_000)
    mode: str = option(one_of("PERMISSIVE", "FAILFAST"), READ, "PERMISSIVE")


_LOWER = {one.name.lower(): one for one in declared(ChangesOptions)}
NAMES = tuple(one.name for one in declared(ChangesOptions))


def parse_changes(given: Mapping[str, str]) -> ChangesOptions:
    """Return the checked options, or raise an OptionError that lists every mistake."""
    values = {name.lower(): value for name, value in given.items()}
    parsed, wrong = read_values(values, _LOWER)
    if "path" in values:
        wrong.append("path: format('rillet.changes') needs the url of a server")
    else:
        wrong += server_problems(values)
    if "folder" not in values:
        wrong.append(NO_FOLDER)
    if "url" in values and not wrong and Address.parse(values["url"]).seeds:
        wrong.append("a cluster has no common stream of changes: start a query for each of its masters")
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    return ChangesOptions(**parsed, named=frozenset(values))
