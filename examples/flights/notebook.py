# %% [markdown]
# # Flights, as a stream and as a table
#
# A notebook: each `# %%` begins a cell in VS Code, PyCharm, Spyder, or Jupyter with jupytext. As a program:
#
#     python -m examples.flights.notebook
#
# It needs `pip install "rillet[demo]"` and Java 17. All files are in a temporary folder. `RILLET_FLIGHTS=3000`
# limits the number of flights.

# %%
import os
import tempfile
from pathlib import Path
from typing import Any

import rillet
from examples.flights import data
from rillet.spark import history, progress, session
from rillet.spark.pipelines import archive

month = data.flights(int(os.environ.get("RILLET_FLIGHTS", "27000")))
first = len(month) * 2 // 3
folder = Path(tempfile.mkdtemp(prefix="rillet-flights-"))
spark = session("local[2]", "flights")

# %% [markdown]
# ## A stream
#
# A store in a folder needs no server and no setup. It receives the first three weeks of January 2013; the ID of an
# entry is the scheduled minute of departure. With `url="redis://..."` instead of `path=...`, all cells below read from
# Redis or Valkey.

# %%
store = rillet.open(folder / "flights.rillet")
flights = store.stream("flights")
flights.add_many(data.entries(month[:first]))
print(f"{len(flights):,} flights from {flights.first_id} to {flights.last_id}")

# %% [markdown]
# ## A table
#
# The schema names the fields to read and their types; `id` and `timestamp` are columns of every entry. A range of IDs
# is a range of time, so a filter on `timestamp` reads only the entries in that range.

# %%
place: dict[str, Any] = {"path": str(folder / "flights.rillet"), "stream": "flights"}
columns = "timestamp timestamp, carrier string, origin string, dest string, dep_delay double, distance int"
table = spark.read.format("rillet").schema(columns).options(**place).load()
table.createOrReplaceTempView("flights")
worst = spark.sql("""
    select carrier, count(*) as flights, round(avg(dep_delay), 1) as mean_delay
    from flights where timestamp >= '2013-01-02' group by carrier having count(*) > 100 order by mean_delay desc limit 5
""")
worst.show()

# %% [markdown]
# Without a schema, the connector infers one from a sample.

# %%
spark.read.format("rillet").options(**place, inferSchema="true").load().printSchema()

# %% [markdown]
# ## A stream of delays
#
# The same source as a streaming query: late flights go to another stream, each exactly once, however often this cell
# runs, is interrupted or fails. The checkpoint holds the offset, and the store holds the record of written batches.

# %%
late = (
    spark.readStream.format("rillet").schema(columns).options(**place, maxEntriesPerTrigger="10000").load()
    .where("dep_delay > 60").select("carrier", "origin", "dest", "dep_delay")
)  # fmt: skip
query = (
    late.writeStream.format("rillet").options(path=place["path"], stream="late")
    .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
)  # fmt: skip
query.awaitTermination()
print(progress(query))
written = store.stream("late")
print(f"{len(written):,} flights were over an hour late, the last of them: {written.reverse(count=1)[0].fields}")

# %% [markdown]
# ## An archive, and history
#
# Old entries move from the stream to Parquet files by day. Then the rest of the month arrives. `history` reads both as
# one table, without gaps or duplicates.

# %%
done = archive(spark, folder / "flights.archive", trim=True, **place)
print(done.line("flights.archive"))
flights.add_many(data.entries(month[first:]))
everything = history(spark, "flights", archive=folder / "flights.archive", path=place["path"])
print(f"{len(flights):,} entries in the stream, {everything.count():,} in its history")

# %% [markdown]
# The same from a shell, for any server:
#
#     rillet pipeline archive flights.archive --url redis://localhost --stream flights --trim
#     rillet pipeline history flights.archive --url redis://localhost --stream flights
#     rillet pipeline lag --url redis://localhost --stream flights

# %%
store.close()
