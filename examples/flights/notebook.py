# %% [markdown]
# # Flights, as a stream and as a table
#
# A notebook: what begins with `# %%` is a cell in VS Code, PyCharm, Spyder or, by jupytext, in Jupyter. As a program:
#
#     python -m examples.flights.notebook
#
# It needs `pip install "rillet[demo]"` and Java 17. Everything happens in a folder of its own. `RILLET_FLIGHTS=3000`
# makes it a small one.

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
# A store in a folder: no server, nothing to set up. The first three weeks of January 2013 go in; the ID of an entry is
# the minute in which the flight was to leave. With `url="redis://..."` in place of `path=...` all of the below reads
# from Redis or Valkey.

# %%
store = rillet.open(folder / "flights.rillet")
flights = store.stream("flights")
flights.add_many(data.entries(month[:first]))
print(f"{len(flights):,} flights from {flights.first_id} to {flights.last_id}")

# %% [markdown]
# ## A table
#
# The schema names the fields that are wanted and their types; `id` and `timestamp` are the entry's own. A range of IDs
# is a range of time, so a filter on `timestamp` reads only what lies between.

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
# No schema in mind yet? A sample tells one.

# %%
spark.read.format("rillet").options(**place, inferSchema="true").load().printSchema()

# %% [markdown]
# ## A stream of delays
#
# The same source, followed: what is late goes into another stream, each flight exactly once however often this cell
# runs, is interrupted or fails. The offset is in the checkpoint, the record of what was written in the store.

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
# What is old goes to Parquet, by day, and leaves the stream. The rest of the month arrives. `history` is both as one
# table, without a gap and without a double where they meet.

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
