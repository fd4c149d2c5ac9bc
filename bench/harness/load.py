"""The loads: what one burst of a case sends to a server, from a process held on a processor of its own.

    python load.py keyed PORT IN_FLIGHT COUNT       unary Submit with a key on each task, grpcio's asyncio client
    python load.py drain PORT SLOTS COUNT           one Work stream on a raw socket: a lease in, a completion out
    python load.py totals PORT                      what the server counts itself, from Admin.Snapshot

Each prints one JSON object, an empty one when the server has no Snapshot.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cronoq._proto import cronoq_pb2 as pb
from harness.drain import DrainClient
from harness.processes import LOAD_CPU, pinned

PAYLOAD = b"x" * 100


def task(key: str = "") -> pb.TaskSpec:
    """The task that all cases submit."""
    return pb.TaskSpec(payload=PAYLOAD, kind="email.send", pool="default", key=key, tags={"team": "core"})


def submit_body(folder: Path) -> Path:
    """A file with one length-prefixed SubmitRequest, as h2load sends it."""
    message = pb.SubmitRequest(task=task()).SerializeToString()
    path = folder / "body"
    path.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    return path


def submit(port: int, count: int, connections: int, in_flight: int, body: Path) -> float:
    """Submit `count` tasks with h2load, `in_flight` on each connection; calls per second."""
    command = ["h2load", "-n", str(count), "-c", str(connections), "-m", str(in_flight), "-d", str(body)]
    for header in ("content-type: application/grpc", "te: trailers", "user-agent: grpc-python/1.85"):
        command += ["-H", header]
    command.append(f"http://127.0.0.1:{port}/cronoq.v1.Tasks/Submit")
    said = subprocess.run(pinned(LOAD_CPU, command), capture_output=True, text=True, check=False).stdout
    rate = re.search(r"finished in [\d.]+(?:m?s|us), ([\d.]+) req/s", said)
    succeeded = re.search(r"(\d+) succeeded", said)
    if rate is None or succeeded is None or int(succeeded.group(1)) != count:
        raise SystemExit(f"h2load: not all of {count} calls succeeded:\n{said[-800:]}")
    return float(rate.group(1))


def child(kind: str, *arguments: int | str, script: str = __file__) -> dict[str, Any]:
    """Run one of the loads of this module, or of another script, in a process of its own; what it printed."""
    command = [sys.executable, script, kind, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        pinned(LOAD_CPU, command), capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    if done.returncode:
        raise SystemExit(f"the load `{kind}` failed:\n{done.stderr[-1500:]}{done.stdout[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


async def keyed(port: int, in_flight: int, count: int) -> dict[str, float]:
    """Submit `count` tasks, each with a new key; rate, and latency in microseconds."""
    import grpc

    numbers, latencies = iter(range(count)), []
    run = f"{os.getpid()}-{time.time_ns()}"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/cronoq.v1.Tasks/Submit",
            request_serializer=pb.SubmitRequest.SerializeToString,
            response_deserializer=pb.SubmitResponse.FromString,
        )
        await channel.channel_ready()

        async def submitter() -> None:
            for number in numbers:
                start = time.perf_counter()
                await call(pb.SubmitRequest(task=task(f"{run}-{number}")), timeout=60)
                latencies.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(submitter() for _ in range(in_flight)))
        elapsed = time.perf_counter() - start
    latencies.sort()
    return {
        "rate": count / elapsed,
        "p50_us": latencies[count // 2] * 1e6,
        "p99_us": latencies[count * 99 // 100] * 1e6,
    }


def drain(port: int, slots: int, count: int) -> dict[str, float]:
    """Take `count` leases with `slots` slots and complete each at once; leases per second since the first one."""
    client = DrainClient(port, slots)
    rate = client.run(count)
    time.sleep(0.3)  # the server's last work for this stream belongs to this burst
    client.close()
    return {"rate": rate}


def totals(port: int) -> dict[str, int]:
    """The server's own counts since its start; empty when it does not implement Admin.Snapshot."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/cronoq.v1.Admin/Snapshot",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.SnapshotResponse.FromString,
        )
        try:
            counted = call(pb.Empty(), timeout=60).totals
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return {}
            raise
    return {"submitted": counted.submitted, "succeeded": counted.succeeded}


def main(kind: str, *arguments: str) -> None:
    """Run the load that the command line names."""
    numbers = [int(argument) for argument in arguments]
    if kind == "keyed":
        print(json.dumps(asyncio.run(keyed(*numbers))))
    elif kind == "drain":
        print(json.dumps(drain(*numbers)))
    elif kind == "totals":
        print(json.dumps(totals(*numbers)))
    else:
        raise SystemExit(f"no load is named {kind}")


if __name__ == "__main__":
    main(*sys.argv[1:])
