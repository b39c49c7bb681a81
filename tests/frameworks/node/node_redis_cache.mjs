// node-redis: its cache in the client, which the server invalidates (CLIENT TRACKING in RESP3).
import assert from "node:assert/strict";
import { load, url } from "./packages.mjs";

const { createClient } = load("redis");
const client = createClient({ url, RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } });
await client.connect();
const other = createClient({ url });
await other.connect();

await client.set("cached", "old");
assert.equal(await client.get("cached"), "old");
const commands = async () => Number(/cmdstat_get:calls=(\d+)/.exec(await other.info("commandstats"))[1]);
const before = await commands();
assert.equal(await client.get("cached"), "old");
assert.equal(await commands(), before); // the client did not ask the server again
await other.set("cached", "new");
const deadline = Date.now() + 10000;
while ((await client.get("cached")) !== "new") {
  assert.ok(Date.now() < deadline, "the cache is invalidated");
  await new Promise((go) => setTimeout(go, 20));
}
await client.close();
await other.close();
console.log("node-redis-cache done");
