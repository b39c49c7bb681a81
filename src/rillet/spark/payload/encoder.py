"""Chooses the format of the options, and encodes rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.extras import require
from rillet.spark.options import OptionError, Options
from rillet.spark.payload.formats import Format, JsonFormat, one_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def format_of(options: Options, writing: bool = False) -> Format:
    """Return the format that the options name, with its schema from the options or the registry, on the driver."""
    if options.payload == "json":
        if writing and options.payload_schema is not None:
            raise OptionError("rillet: leave out payloadSchema: payload=json is written with the columns of the rows")
        return JsonFormat()
    require(str(options.payload), f"payload={options.payload}")
    if options.payload == "avro":
        from rillet.spark.payload.avro import AvroFormat

        return AvroFormat.of(options, writing)
    from rillet.spark.payload.protobuf import ProtobufFormat

    return ProtobufFormat.of(options, writing)


class PayloadEncoder:
    """Encodes the payload's columns of a row; Spark pickles it with every task."""

    def __init__(self, options: Options, columns: Mapping[str, str], schema: StructType) -> None:
        """columns: the name in the payload of each column to write. schema: of the rows."""
        from pyspark.sql.types import StructField, StructType

        self.field = options.payload_field
        self.columns = dict(columns)
        self.struct = StructType([StructField(name, schema[column].dataType) for column, name in columns.items()])
        self.format = format_of(options, writing=True)
        wrong = self.format.problems(self.struct, reading=False)
        if missing := [name for name in self.format.required() if name not in self.columns.values()]:
            wrong.append(f"{self.format.source} needs a column for {', '.join(missing)}, without a default")
        if wrong:
            raise OptionError(f"rillet: the columns do not fit {self.format.source}: {'; '.join(wrong)}")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the function, which a task makes."""
        return {name: value for name, value in self.__dict__.items() if name != "_encode"}

    def payloads(self, batch: Any) -> Any:
        """Return the payloads of a record batch's rows as an Arrow array; ConnectorError if a row does not fit."""
        import pyarrow as pa

        encode = self.__dict__.get("_encode") or self.__dict__.setdefault("_encode", self.format.encoder(self.struct))
        arrays = [batch.column(column) for column in self.columns]
        table = pa.RecordBatch.from_arrays(arrays, list(self.columns.values()))
        # With maps_as_pydicts, pyarrow takes seven times as long, also for a batch without a map.
        rows = table.to_pylist(maps_as_pydicts="strict") if "map<" in str(table.schema) else table.to_pylist()
        try:
            return pa.array(map(encode, rows), pa.binary())
        except Exception as error:  # the libraries raise many kinds
            raise ConnectorError(f"rillet: a row does not fit {self.format.title}: {one_line(error)}") from None
