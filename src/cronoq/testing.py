"""For tests of programs that use cronoq: handlers without a server, a server in the process, fake workers.

result = await run_handler(handle, b"payload", attempt=2)        # what a worker would report
number = await run_task(send_email, "you@example.org")           # what a typed function returns, through its JSON form

async with serve(pools=["default"]) as server:
    async with Client(server.target) as client, FakeWorker(server.target, "default") as worker: ...

run(main)                                                        # under Trio, on a clock that jumps
"""

from cronoq._client.testing_handlers import HandlerResult, run_handler, run_task
from cronoq._client.testing_server import TestServer, run, serve
from cronoq._client.testing_worker import FakeWorker

__all__ = ["FakeWorker", "HandlerResult", "TestServer", "run", "run_handler", "run_task", "serve"]
