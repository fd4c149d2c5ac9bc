"""Binding says what is wrong in one sentence; accepting survives every trouble that passes."""

import errno
import socket

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from cronoq._runtime import listeners
from cronoq._runtime.transport import SocketTransport
from cronoq.errors import StartError


def test_port_zero_takes_a_free_port() -> None:
    with listeners.bind(("127.0.0.1", 0), "server.grpc_addr") as listener:
        host, port = listeners.local_address(listener)
        assert host == "127.0.0.1" and port > 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda taken: ("127.0.0.1", taken), "another program listens there; stop it, or choose another server.x"),
        (lambda _taken: ("203.0.113.1", 1), "this host has no such address; correct server.x"),
    ],
)
def test_what_cannot_be_bound_is_one_sentence(make, sentence) -> None:  # type: ignore[no-untyped-def]
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = make(other.getsockname()[1])
        with pytest.raises(StartError) as caught:
            listeners.bind(address, "server.x")
    assert str(caught.value) == f"cannot listen on {address[0]}:{address[1]}: {sentence}"


class Listener:
    """A socket that fails as told before it accepts."""

    def __init__(self, *errors: int) -> None:
        self.real = listeners.bind(("127.0.0.1", 0), "x")
        self.errors = list(errors)

    def fileno(self) -> int:
        return self.real.fileno()

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.errors:
            code = self.errors.pop(0)
            raise OSError(code, "made up")
        return self.real.accept()


@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ECONNABORTED, errno.EPROTO, errno.EAGAIN, errno.EPERM]
)
async def test_accepting_goes_on_after(code: int, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    listener = Listener(code, code)
    accepted: list[socket.socket] = []
    nursery.start_soon(
        listeners.accept_all,
        listener,
        lambda connected, _peer: accepted.append(connected),  # type: ignore[arg-type]
    )
    with socket.create_connection(listeners.local_address(listener.real)):
        with trio.fail_after(5):
            while not accepted:
                await trio.sleep(0.01)
    assert not listener.errors
    nursery.cancel_scope.cancel()
    accepted[0].close()
    listener.real.close()


async def test_a_shortage_is_logged_once_and_not_spun_on(
    autojump_clock: MockClock, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = Listener(*[errno.EMFILE] * 50)
    accepted: list[socket.socket] = []
    nursery.start_soon(
        listeners.accept_all,
        listener,
        lambda connected, _peer: accepted.append(connected),  # type: ignore[arg-type]
    )
    with socket.create_connection(listeners.local_address(listener.real)):
        await trio.sleep(4.95)
        assert not accepted, "tried more often than ten times a second"
        await trio.sleep(0.2)
    assert capsys.readouterr().out.count("cannot accept connections") == 1
    nursery.cancel_scope.cancel()
    accepted[0].close()
    listener.real.close()


async def test_a_closed_listener_ends_the_loop() -> None:
    listener = listeners.bind(("127.0.0.1", 0), "x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listeners.accept_all, listener, lambda _connected, _peer: None)
        await trio.testing.wait_all_tasks_blocked()
        listeners.close_listener(listener)
        listeners.close_listener(listener)


def test_accepted_sockets_have_no_delay_and_keepalive() -> None:
    with (
        listeners.bind(("127.0.0.1", 0), "x") as listener,
        socket.create_connection(listeners.local_address(listener)),
    ):
        listener.setblocking(True)
        connected, _ = listener.accept()
        with connected:
            SocketTransport(connected)
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert not connected.getblocking()
