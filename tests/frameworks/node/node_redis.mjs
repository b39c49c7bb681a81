// node-redis: RESP3, transactions, scripts, functions, channels, streams, blocking reads.
import assert from "node:assert/strict";
import { load, url } from "./packages.mjs";

const { createClient, defineScript } = load("redis");
const ADD = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: "return redis.call('INCRBY', KEYS[1], ARGV[1])",
  parseCommand(parser, key, by) {
    parser.pushKey(key);
    parser.push(String(by));
  },
  transformReply: (reply) => reply,
});
const client = createClient({ url, RESP: 3, scripts: { addTo: ADD } });
await client.connect();
const other = client.duplicate();
await other.connect();

assert.deepEqual(await client.multi().set("a", "1").incr("a").hSet("h", { x: "1" }).hGetAll("h").exec(),
  ["OK", 2, 1, { x: "1" }]);
assert.equal(await client.addTo("n", 5), 5);
await client.scriptFlush();
assert.equal(await client.addTo("n", 5), 10);

await client.functionLoad("#!lua name=lib\nredis.register_function('twice', function(k, a) return a[1] * 2 end)", { REPLACE: true });
assert.equal(await client.fCall("twice", { keys: [], arguments: ["21"] }), 42);

const heard = new Promise((resolve) => other.subscribe("news", resolve).then(() => client.publish("news", "hello")));
assert.equal(await heard, "hello");
await other.unsubscribe("news");

await client.xGroupCreate("s", "g", "$", { MKSTREAM: true });
const id = await client.xAdd("s", "*", { k: "v" });
const [stream] = Object.entries(await client.xReadGroup("g", "one", { key: "s", id: ">" }, { COUNT: 1 }))
  .map(([, value]) => value);
assert.match(JSON.stringify(stream), new RegExp(id));
assert.equal(await client.xAck("s", "g", id), 1);

const popped = other.blPop("list", 10);
await client.rPush("list", "x");
assert.equal((await popped).element, "x");
await client.zAdd("z", [{ value: "a", score: 1.5 }, { value: "b", score: 2 }]);
assert.deepEqual((await client.zRangeWithScores("z", 0, -1)).map((one) => one.score), [1.5, 2]);
await assert.rejects(client.lPush("a", "1"), /WRONGTYPE/);
await client.close();
await other.close();
console.log("node-redis done");
