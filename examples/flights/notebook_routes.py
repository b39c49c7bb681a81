# %% [markdown]
# # Delays by route, as hashes
#
# A notebook: each `# %%` begins a cell in VS Code, PyCharm, Spyder, or Jupyter with jupytext. As a program:
#
#     python -m examples.flights.notebook_routes
#
# Flights arrive in a stream. Spark adds the airports' names from hashes, computes the delay of each route, and keeps
# the result in hashes, where every Redis client reads it in microseconds. It needs `pip install "rillet[demo]"` and
# Java 17. All files are in a temporary folder. `RILLET_FLIGHTS=3000` limits the number of flights.

# %%
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rillet
from examples.flights import data
from rillet.spark import enrich, foreach_batch, progress, session

month = data.flights(int(os.environ.get("RILLET_FLIGHTS", "27000")))
first = len(month) * 2 // 3
folder = Path(tempfile.mkdtemp(prefix="rillet-routes-"))
spark = session("local[2]", "routes", spark_sql_shuffle_partitions="2")

# %% [markdown]
# ## A server
#
# A store in a folder listens on a free port: Spark and redis-cli connect to its URL, as to any server. With
# `rillet.connect("redis://...")` instead of `rillet.open(...)`, all cells below use Redis or Valkey.

# %%
store = rillet.open(folder / "flights.rillet")
url = store.serve().url


def redis_cli(*words: str) -> None:
    """Run redis-cli and print its output."""
    print("$ redis-cli", *words)
    if shutil.which("redis-cli") is None:
        print("redis-cli is not installed: apt-get install redis-tools, or brew install redis")
        return
    done = subprocess.run(["redis-cli", "-u", url, "--no-raw", *words], capture_output=True, text=True, check=True)
    print(done.stdout)


# %% [markdown]
# ## Airports, as hashes
#
# A row becomes a hash: `keyPrefix` and the column `keyColumn` make the key, and every other column is a field.

# %%
columns = "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string"
airports = spark.read.csv(str(data.folder() / "airports.csv"), header=True, schema=columns, nullValue="NA")


def write_airports(table: DataFrame) -> None:
    """Write rows as the hashes airport:<faa>."""
    options = {"url": url, "type": "hash", "keyPrefix": "airport:", "keyColumn": "faa"}
    table.write.format("rillet").mode("append").options(**options).save()


write_airports(airports)
redis_cli("HGETALL", "airport:LAX")

# %% [markdown]
# ## Flights with the names of airports
#
# The first three weeks of January 2013 arrive in a stream. `enrich` looks up the hash of each flight's destination, and
# adds the fields as columns. (It keeps hashes for a minute. `max_age=0` looks up again, because the next cell changes
# them.)

# %%
flights = store.stream("flights")
flights.add_many(data.entries(month[:first]))
source: dict[str, Any] = {"url": url, "stream": "flights"}
schema = "timestamp timestamp, carrier string, origin string, dest string, arr_delay int"
table = spark.read.format("rillet").schema(schema).options(**source).load()
named = enrich(table, "airport:{dest}", "name string, tz int", prefix="dest_", max_age=0, url=url)
named.show(5)

# %% [markdown]
# A flight whose destination has no hash has nulls. The list of airports lacks the islands in the Caribbean:

# %%
unnamed = named.where("dest_name is null").groupBy("dest").count().orderBy(F.desc("count"))
unnamed.show()

# %% [markdown]
# So add them. `append` is an upsert: hashes that exist are updated, field by field.

# %%
islands = [("SJU", "Luis Munoz Marin Intl"), ("BQN", "Rafael Hernandez"), ("STT", "Cyril E King"), ("PSE", "Mercedita")]
write_airports(spark.createDataFrame([(*island, -4) for island in islands], "faa string, name string, tz int"))
left = named.where("dest_name is null").count()
print(f"{left} of {len(flights):,} flights have a destination without a name")

# %% [markdown]
# ## Delays by route, while flights arrive
#
# The same look-up in a streaming query. The output mode `update` returns the routes that a micro-batch has changed, and
# `foreach_batch` upserts each as a hash. A batch that is repeated after a failure writes the same values again.

# %%
live = spark.readStream.format("rillet").schema(schema).options(**source, maxEntriesPerTrigger="10000").load()
routes = (
    enrich(live, "airport:{dest}", ["name"], url=url)
    .groupBy(F.concat_ws("-", "origin", "dest").alias("route"))
    .agg(
        F.first("name").alias("to"),
        F.count("arr_delay").alias("flights"),
        F.round(F.avg("arr_delay"), 1).alias("delay"),
        F.max("arr_delay").alias("worst"),
    )
)
hashes = {"url": url, "type": "hash", "keyPrefix": "route:", "keyColumn": "route"}


def run_to_the_end() -> None:
    """Continue from the checkpoint, and process all flights that are in the stream."""
    writer = routes.writeStream.outputMode("update").foreachBatch(foreach_batch(**hashes))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    print(progress(query))


run_to_the_end()
redis_cli("HGETALL", "route:JFK-LAX")

# %% [markdown]
# ## The last week arrives
#
# The query continues where it ended: it reads the new flights, and updates the hashes of their routes.

# %%
flights.add_many(data.entries(month[first:]))
run_to_the_end()
redis_cli("HGETALL", "route:JFK-LAX")

# %% [markdown]
# ## The hashes, as a table
#
# An application asks for one route by its key; Spark reads them all. The prefix is not in the column.

# %%
fields = "route string, to string, flights int, delay double, worst int"
delays = spark.read.format("rillet").schema(fields).options(**hashes).load()
delays.where("flights >= 20").orderBy(F.desc("delay"), "route").show(5, truncate=False)
landed = delays.agg(F.sum("flights")).collect()[0][0]
print(f"{delays.count()} routes, {landed:,} flights")

# %%
store.close()
