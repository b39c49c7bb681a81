// ioredis: pipelines, transactions, commands in Lua, channels, streams with groups, scans, blocking reads.
import assert from "node:assert/strict";
import { load, url } from "./packages.mjs";

const Redis = load("ioredis");
const redis = new Redis(url);
const other = redis.duplicate();

assert.deepEqual(await redis.pipeline().set("a", 1).incr("a").get("a").exec(), [[null, "OK"], [null, 2], [null, "2"]]);
assert.deepEqual(await redis.multi().hset("h", { x: 1, y: 2 }).hgetall("h").exec(), [[null, 2], [null, { x: "1", y: "2" }]]);
await redis.watch("a");
await other.set("a", "changed");
assert.equal(await redis.multi().set("a", "mine").exec(), null);

redis.defineCommand("addTo", { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" });
assert.equal(await redis.addTo("n", 5), 5);
await redis.script("FLUSH");
assert.equal(await redis.addTo("n", 5), 10);
assert.deepEqual(await redis.pipeline().addTo("n", 1).addTo("n", 1).exec(), [[null, 11], [null, 12]]);

const heard = new Promise((resolve) => other.on("message", (channel, text) => resolve([channel, text])));
await other.subscribe("news");
await redis.publish("news", "hello");
assert.deepEqual(await heard, ["news", "hello"]);
await other.unsubscribe("news");

await redis.xgroup("CREATE", "s", "g", "$", "MKSTREAM");
const waiting = other.xreadgroup("GROUP", "g", "one", "BLOCK", 10000, "STREAMS", "s", ">");
const id = await redis.xadd("s", "*", "k", "v");
assert.deepEqual(await waiting, [["s", [[id, ["k", "v"]]]]]);
assert.equal((await redis.xpending("s", "g"))[0], 1);
assert.equal(await redis.xack("s", "g", id), 1);

const popped = other.blpop("list", 10);
await redis.rpush("list", "x");
assert.deepEqual(await popped, ["list", "x"]);

for (let n = 0; n < 500; n++) redis.set(`scan:${n}`, n);
const found = new Set();
for await (const keys of redis.scanStream({ match: "scan:*", count: 50 })) keys.forEach((key) => found.add(key));
assert.equal(found.size, 500);
await assert.rejects(redis.lpush("a", 1), /WRONGTYPE/);
assert.deepEqual(await redis.getBuffer("a"), Buffer.from("changed"));
await redis.quit();
other.disconnect();
console.log("ioredis done");
