// BullMQ: jobs, results, retries with a delay, delayed jobs, priorities, flows, schedulers, a rate limit, events.
import assert from "node:assert/strict";
import { load, place } from "./packages.mjs";

const { FlowProducer, Queue, QueueEvents, Worker } = load("bullmq");
const connection = { ...place(), maxRetriesPerRequest: null };
const queue = new Queue("work", { connection });
const events = new QueueEvents("work", { connection });
await events.waitUntilReady();

const run = async (job) => {
  if (job.name === "add") return job.data.one + job.data.other;
  if (job.name === "flaky" && job.attemptsMade === 0) throw new Error("the first run fails");
  if (job.name === "broken") throw new Error("broken");
  if (job.name === "parent") return Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
  await job.updateProgress(50);
  return job.attemptsMade;
};
const worker = new Worker("work", run, { connection, limiter: { max: 100, duration: 100 } });

const added = await queue.add("add", { one: 2, other: 3 });
const later = await queue.add("add", { one: 20, other: 3 }, { delay: 500 });
const urgent = await queue.add("add", { one: 1, other: 1 }, { priority: 1 });
const flaky = await queue.add("flaky", {}, { attempts: 3, backoff: { type: "fixed", delay: 100 } });
const broken = await queue.add("broken", {});
const results = await Promise.all([added, later, urgent, flaky].map((job) => job.waitUntilFinished(events, 30000)));
assert.deepEqual(results, [5, 23, 2, 1]);
await assert.rejects(broken.waitUntilFinished(events, 30000), /broken/);
assert.equal((await queue.getFailed()).length, 1);
await broken.remove();

const flows = new FlowProducer({ connection });
const child = (one) => ({ name: "add", queueName: "work", data: { one, other: 1 } });
const flow = await flows.add({ name: "parent", queueName: "work", children: [child(1), child(2)] });
assert.equal(await flow.job.waitUntilFinished(events, 30000), 5);

await queue.upsertJobScheduler("often", { every: 200 }, { name: "add", data: { one: 0, other: 0 } });
const before = await queue.getCompletedCount();
const deadline = Date.now() + 30000;
while ((await queue.getCompletedCount()) < before + 2) {
  assert.ok(Date.now() < deadline, "the scheduler adds jobs");
  await new Promise((go) => setTimeout(go, 50));
}
await queue.removeJobScheduler("often");

await queue.pause();
await queue.add("add", { one: 1, other: 1 });
assert.equal(await queue.count() >= 1, true);
await worker.close();
await queue.obliterate({ force: true });
assert.equal(await queue.count(), 0);
await Promise.all([queue.close(), events.close(), flows.close()]);
console.log("bullmq done");
