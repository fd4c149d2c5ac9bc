"""Node's own HTTP/2 client, which a test drives line by line (`node/http2.mjs`)."""

import base64
import json
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.acceptance.server import HANG
from tests.foreign.programs import installed, node_folder, trusting

HEADERS = {":method": "POST", "content-type": "application/grpc", "te": "trailers"}


class NodeClient:
    """One connection."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        command = [installed("node"), str(node_folder() / "http2.mjs"), url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=trusting(ca)
        )
        self._heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._aside: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "NodeClient":
        assert self.hear("session") == {"session": "connect"}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        self._process.stdin.close()
        self._process.wait(HANG)
        self._reader.join(HANG)
        self._process.stdout.close()

    def call(self, number: int, method: str, *contents: bytes, end: bool = True, **options: Any) -> None:
        """Open a stream for `Tasks/Submit` and the like, say these contents, and, if so, that it is all."""
        self.do(open=number, headers={**HEADERS, ":path": f"/cronoq.v1.{method}"}, **options)
        for content in contents:
            self.write(number, content)
        if end:
            self.do(end=number)

    def write(self, number: int, content: bytes) -> None:
        self.do(write=number, data=base64.b64encode(content).decode())

    def do(self, **command: Any) -> None:
        """A line as it is."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def hear(self, kind: str, number: int | None = None) -> dict[str, Any]:
        """The next event of a kind, of a stream if one is named; others are kept."""
        for event in self._aside:
            if kind in event and number in (None, event[kind]):
                self._aside.remove(event)
                return event
        while True:
            event = self._heard.get(timeout=HANG)
            assert event is not None, f"Node has ended before {kind} came; it told {self._aside}"
            if kind in event and number in (None, event[kind]):
                return event
            self._aside.append(event)

    def content(self, number: int) -> bytes:
        """What comes next on a stream."""
        return base64.b64decode(self.hear("data", number)["content"])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(json.loads(line))
        self._heard.put(None)
