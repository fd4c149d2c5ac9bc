"""A release whose check fails, and one that waits for a task which comes later; python release.py [trio|asyncio]."""

import sys

import anyio

from cronoq.client import Client, ClientError, Dep
from cronoq.handlers import Tasks
from cronoq.worker import Permanent

SERVER = "127.0.0.1:7070"
tasks = Tasks()


@tasks.handler("build")
def build(version: str) -> str:
    return f"{version} built"


@tasks.handler("check")
def check(version: str) -> None:
    if version == "1.0":
        raise Permanent("2 tests failed")


@tasks.handler("publish")
def publish(version: str) -> str:
    return f"{version} published"


@tasks.handler("report")
def report(version: str) -> str:
    return f"{version} is not fit to publish"


@tasks.handler("clean")
def clean(version: str) -> str:
    return f"{version} cleaned up"


async def main() -> None:
    async with Client(SERVER) as client, tasks.worker(SERVER, slots=4):
        # One batch; who waits for whom is said by key, in any order.
        batch = [
            publish.with_options(deps=["check 1.0"]).spec("1.0"),
            report.with_options(deps=[Dep("check 1.0", "failure")]).spec("1.0"),
            check.with_options(key="check 1.0", deps=["build 1.0"]).spec("1.0"),
            build.with_options(key="build 1.0").spec("1.0"),
        ]
        handed_in = await client.submit_batch(batch)

        # By id: the tasks that were just handed in, however they end.
        both = [Dep(submitted.id, "complete") for submitted in handed_in[:2]]
        handed_in.append(await clean.with_options(deps=both).submit(client, "1.0"))
        for submitted in handed_in:
            result = await client.wait(submitted.id)
            print(result.status, result.text() or result.message)

        try:
            await publish.with_options(deps=["check 2.0"]).submit(client, "2.0")
        except ClientError as error:
            print(error.code, error.message)


anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
