"""A relay between a client and a server that looks at what goes through: frames by type, header blocks as they are.

Both sides are real; the relay changes nothing. It counts what a test wants to know of a peer that cannot be asked.
"""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TYPES = (
    *("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS"),
    *("PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"),
)
DATA, HEADERS, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 4, 6, 7, 9
ACK, END_HEADERS, PADDED, PRIORITY = 1, 4, 8, 32
HEAD = 9
_READ = 1 << 18


@dataclass
class Direction:
    """What one side of a connection has sent."""

    frames: Counter[str] = field(default_factory=Counter)
    """By type; a PING and a SETTINGS that answer are counted as `PING ACK` and `SETTINGS ACK`."""
    blocks: list[bytes] = field(default_factory=list)
    """Whole header blocks, in order."""
    settings: list[bytes] = field(default_factory=list)
    """The content of SETTINGS."""
    ends: list[int] = field(default_factory=list)
    """The codes of GOAWAY."""
    whole: bytearray | None = None
    """Every byte; None = nobody asked."""
    log: list[tuple[str, int, int, bytes]] | None = None
    """Every frame: type, flags, stream, and its content, of DATA in place of it the length; None = nobody asked."""
    _rest: bytes = b""
    _open: bytes = b""
    _skip: int = 0

    def feed(self, data: bytes) -> None:
        """Bytes as they come, without the client's preface. Of DATA only the head is looked at."""
        if self.whole is not None:
            self.whole += data
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
        data = self._rest + data
        at = 0
        while len(data) - at >= HEAD:
            size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
            end = at + HEAD + size
            if kind != DATA and end > len(data):
                break
            self._frame(kind, flags, data[at:end])
            if end > len(data):
                self._skip = end - len(data)
                end = len(data)
            at = end
        self._rest = data[at:]

    def _frame(self, kind: int, flags: int, frame: bytes) -> None:
        name = TYPES[kind] if kind < len(TYPES) else f"type {kind}"
        self.frames[f"{name} ACK" if kind in (PING, SETTINGS) and flags & ACK else name] += 1
        if self.log is not None:
            stream = int.from_bytes(frame[5:HEAD], "big")
            self.log.append(
                (name, flags, stream, frame[HEAD:] if kind != DATA else b"%d" % int.from_bytes(frame[:3], "big"))
            )
        if kind in (HEADERS, CONTINUATION):
            content = frame[HEAD:]
            if kind == HEADERS and flags & PADDED:
                content = content[1 : len(content) - content[0]]
            if kind == HEADERS and flags & PRIORITY:
                content = content[5:]
            self._open += content
            if flags & END_HEADERS:
                self.blocks.append(self._open)
                self._open = b""
        elif kind == SETTINGS and not flags & ACK:
            self.settings.append(frame[HEAD:])
        elif kind == GOAWAY:
            self.ends.append(int.from_bytes(frame[HEAD + 4 : HEAD + 8], "big"))


@dataclass
class Connection:
    """Both directions."""

    client: Direction = field(default_factory=Direction)
    server: Direction = field(default_factory=Direction)


class Tap:
    """Listens; each connection to it is one to the server."""

    def __init__(self, port: int, *, log: bool = False, whole: bool = False) -> None:
        """`port`: of the server. `log`: keep every frame. `whole`: keep every byte of the server."""
        self.connections: list[Connection] = []
        self._target = ("127.0.0.1", port)
        self._log = log
        self._whole = whole
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End everything that goes through."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def only(self) -> Connection:
        """The connection, of which there was one alone."""
        (connection,) = self.connections
        return connection

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            connection = Connection()
            if self._log:
                connection.client.log, connection.server.log = [], []
            if self._whole:
                connection.server.whole = bytearray()
            self.connections.append(connection)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(end)
            for source, sink, way, skip in (
                (client, server, connection.client, len(PREFACE)),
                (server, client, connection.server, 0),
            ):
                way._skip = skip
                threading.Thread(target=_carry, args=(source, sink, way), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket, way: Direction) -> None:
    try:
        while data := source.recv(_READ):
            # Before it is sent: what answers it must not be counted earlier than it, and an end may be gone by then.
            way.feed(data)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)
            sink.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def tapped(port: int, *, log: bool = False, whole: bool = False) -> Iterator[Tap]:
    tap = Tap(port, log=log, whole=whole)
    try:
        yield tap
    finally:
        tap.close()
