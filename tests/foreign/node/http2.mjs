// Node's own HTTP/2 client, told line by line what to do.
//
//     node http2.mjs URL
//
// Reads one JSON object a line, each about a stream that it calls by a number of its own:
//     {"open": 1, "headers": {…}}     {"open": 1, "headers": {…}, "count": true}: content is counted and not told
//     {"write": 1, "data": "base64"}  {"end": 1}  {"reset": 1}  {"ping": 1}
// Writes what happens: {"session": "connect" | "goaway" | "close" | "error", …}, and of a stream
//     {"headers": 1, "fields": {…}}  {"data": 1, "data": …}  {"trailers": 1, "fields": {…}}  {"close": 1, "code": 0, "size": …}
// The authority to trust comes in NODE_EXTRA_CA_CERTS.
import { connect, constants } from "node:http2";
import { createInterface } from "node:readline";

const session = connect(process.argv[2]);
const streams = new Map();
const tell = (event) => console.log(JSON.stringify(event));

session.on("connect", () => tell({ session: "connect" }));
session.on("goaway", (code, last, data) => tell({ session: "goaway", code, text: data?.toString() }));
session.on("error", (error) => tell({ session: "error", text: error.message }));
session.on("close", () => tell({ session: "close" }));

// Fields alone: what a header list has besides is of Node.
const plain = (headers) => Object.fromEntries(Object.entries(headers));

function open(number, headers, count) {
  const stream = session.request(headers, { endStream: false });
  let size = 0;
  streams.set(number, stream);
  stream.on("response", (fields) => tell({ headers: number, fields: plain(fields) }));
  stream.on("data", (chunk) => {
    size += chunk.length;
    if (!count) tell({ data: number, content: chunk.toString("base64") });
  });
  stream.on("trailers", (fields) => tell({ trailers: number, fields: plain(fields) }));
  stream.on("error", () => {});
  stream.on("close", () => tell({ close: number, code: stream.rstCode, size }));
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const command = JSON.parse(line);
    if ("open" in command) open(command.open, command.headers, command.count);
    else if ("write" in command) streams.get(command.write).write(Buffer.from(command.data, "base64"));
    else if ("end" in command) streams.get(command.end).end();
    else if ("reset" in command) streams.get(command.reset).close(constants.NGHTTP2_CANCEL);
    else if ("ping" in command) session.ping(() => tell({ ping: command.ping }));
  })
  .on("close", () => session.close());
