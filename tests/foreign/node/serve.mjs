// A server on Connect-ES, over Node's own HTTP/2: the same as `noop_server.py` says of itself.
//
//     node serve.mjs DESCRIPTORS
//
// Prints its port and serves until its input ends.
import { readFileSync } from "node:fs";
import { createServer } from "node:http2";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

const LEASES = 500;
const STREAMS = 50;
const MISSING = "unknown pool 'nowhere é ☃'";
const PAYLOAD = Uint8Array.from({ length: 256 * 20 }, (_, number) => number % 256);
const SUCCEEDED = 6;

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(process.argv[2])));
const totals = { submitted: 0n, succeeded: 0n, cancelled: 0n };
const stored = new Map();
let hanging = 0n;

const result = (id) => ({ id, status: SUCCEEDED, output: stored.get(id), outputAvailable: true });

async function hang({ signal }) {
  hanging += 1n;
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  hanging -= 1n;
  totals.cancelled += 1n;
  throw signal.reason; // that the deadline passed, or that the call was cancelled
}

const tasks = {
  submit({ task, wait }) {
    if (task.pool === "nowhere") throw new ConnectError(MISSING, Code.NotFound);
    const id = (totals.submitted += 1n);
    stored.set(id, task.payload);
    return wait ? { id, result: result(id) } : { id };
  },
  async wait({ task }, context) {
    if (task.target.value === "hung") await hang(context);
    return result(task.target.value);
  },
  async *watch(_, context) {
    for (let id = 1n; id <= 100n; id++) yield { id, pool: "default", key: `k${id}`, status: SUCCEEDED };
    await hang(context);
  },
};

const workers = {
  async *work(messages) {
    let given = 0n;
    const lease = () => ({ msg: { case: "lease", value: { lease: ++given, taskId: given, attempt: 1, payload: PAYLOAD } } });
    for await (const { msg } of messages) {
      if (msg.case === "register") {
        const { slots } = msg.value;
        const registered = { workerId: 1n, leaseTtlS: 30, slots, protocolVersion: 3, maxMessageBytes: 4n << 20n };
        yield { msg: { case: "registered", value: registered } };
        for (let slot = 0; slot < slots; slot++) yield lease();
      } else if (msg.case === "complete") {
        if (Buffer.compare(msg.value.output, PAYLOAD)) throw new ConnectError("another output", Code.InvalidArgument);
        totals.succeeded += 1n;
        if (given < LEASES) yield lease();
      }
    }
  },
};

const admin = { snapshot: () => ({ totals, running: hanging }) };

const adapter = connectNodeAdapter({
  routes: (router) => {
    for (const [name, methods] of Object.entries({ Tasks: tasks, Workers: workers, Admin: admin })) {
      router.service(registry.getService(`cronoq.v1.${name}`), methods);
    }
  },
});
const server = createServer({ settings: { maxConcurrentStreams: STREAMS } }, adapter);
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
