// A client on Connect-ES, as its users write it, with the gRPC transport over HTTP/2.
//
//     node connect.mjs DESCRIPTORS URL
//
// DESCRIPTORS is the contract as a FileDescriptorSet, in place of generated code. Prints what it saw as one JSON object.
// The authority to trust comes in NODE_EXTRA_CA_CERTS.
import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, createGrpcTransport } from "@connectrpc/connect-node";

const [descriptors, baseUrl] = process.argv.slice(2);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const transport = createGrpcTransport({ baseUrl });
const client = (name, over = transport) => createClient(registry.getService(`cronoq.v1.${name}`), over);
const tasks = client("Tasks");
const packed = createGrpcTransport({ baseUrl, sendCompression: compressionGzip });
const byId = (id) => ({ task: { target: { case: "id", value: id } } });

// How a call ends that must fail: code, message, and what its trailers name.
async function failure(call) {
  try {
    await call;
    return ["none"];
  } catch (error) {
    const found = ConnectError.from(error);
    return [Code[found.code], found.rawMessage, found.metadata.get("cronoq-task-id") !== null];
  }
}

async function calls() {
  const first = await tasks.submit({ task: { key: "connect" } });
  const again = await tasks.submit({ task: { key: "connect" } });
  const found = await tasks.get(byId(first.id));
  const undone = new AbortController();
  setTimeout(() => undone.abort(), 50);
  return {
    same: first.id === again.id && found.id === first.id,
    duplicate: [first.duplicate, again.duplicate],
    key: found.key,
    missing: await failure(tasks.get(byId(1n << 40n))),
    pool: await failure(tasks.submit({ task: { pool: "nowhere é ☃" } })),
    late: await failure(tasks.submit({ task: { key: "connect" }, wait: true, waitTimeoutS: 0.05 })),
    deadline: (await failure(tasks.wait(byId(first.id), { timeoutMs: 100 })))[0],
    cancelled: (await failure(tasks.wait(byId(first.id), { signal: undone.signal })))[0],
    ended: (await tasks.cancel(byId(first.id))).cancelled,
  };
}

async function watch() {
  const undone = new AbortController();
  let subscribed;
  const headers = new Promise((resolve) => (subscribed = resolve));
  const options = { signal: undone.signal, onHeader: subscribed };
  const events = tasks.watch({ keys: ["watched"], allTransitions: true }, options)[Symbol.asyncIterator]();
  const next = events.next();
  await headers;
  const { id } = await tasks.submit({ task: { key: "watched" } });
  await tasks.cancel(byId(id));
  const statuses = [(await next).value.status, (await events.next()).value.status, (await events.next()).value.status];
  undone.abort();
  return { statuses, end: (await failure(events.next()))[0] };
}

// Messages that are said while the stream is open; `null` is its end.
function queue() {
  const waiting = [];
  let wake = () => {};
  return {
    say(kind, value) {
      waiting.push(kind && { msg: { case: kind, value } });
      wake();
    },
    async *[Symbol.asyncIterator]() {
      for (;;) {
        while (waiting.length === 0) await new Promise((resolve) => (wake = resolve));
        const message = waiting.shift();
        if (message === null) return;
        yield message;
      }
    },
  };
}

async function work(count, size, over = transport) {
  const [tasks, workers] = ["Tasks", "Workers"].map((name) => client(name, over));
  const out = queue();
  const stream = workers.work(out);
  out.say("register", { pool: "worked", slots: 8, protocolVersion: 3, workerName: "connect" });
  let slots;
  let submitted;
  let done = 0;
  for await (const { msg } of stream) {
    if (msg.case === "registered") {
      slots = msg.value.slots;
      const spec = { pool: "worked", payload: new Uint8Array(size) };
      submitted = Promise.all(Array.from({ length: count }, () => tasks.submit({ task: spec, wait: true })));
    } else {
      out.say("complete", { lease: msg.value.lease, output: msg.value.payload });
      if (++done === count) {
        const answers = await submitted;
        if (answers.some((answer) => answer.result.output.length !== size)) throw new Error("another output");
        out.say(null);
      }
    }
  }
  return { slots, done };
}

const report = {
  calls: await calls(),
  watch: await watch(),
  small: await work(200, 10),
  large: await work(20, 1_000_000),
  packed: await work(20, 1_000_000, packed),
};
console.log(JSON.stringify(report));
process.exit(0);
