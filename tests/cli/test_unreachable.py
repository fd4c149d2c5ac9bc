"""What commands say when there is no server, another program, the wrong transport, or files that cannot be used."""

import socket
import ssl
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from cronoq._cli.main import main
from tests.acceptance.server import Server
from tests.cli.conftest import Cli

CALLS = (
    ("submit", "x"),
    ("submit", "x", "--wait", "--json"),
    ("get", "1"),
    ("wait", "1"),
    ("cancel", "1", "--json"),
    ("list",),
    ("list", "--all", "--json"),
    ("workers",),
    ("snapshot", "--json"),
    ("watch",),
)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """The command line in this process; what it needs of a network is its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("CRONOQ_SERVER", "CRONOQ_TOKEN", "CRONOQ_LOG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "a fault" not in err
        return code, out, err

    return run


@contextmanager
def listener(answer, *, wrap=None):
    """The port of something that answers each connection once."""

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    with wrap(connection) if wrap else connection as stream:
                        stream.recv(4096)
                        stream.sendall(answer)
                        stream.recv(4096)
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_without_a_server_each_command_names_the_target_and_what_to_do(absent, call):
    cli, address = absent
    done = cli(*call)
    assert (done.code, done.out) == (4, "")
    assert done.err == (
        f"Error: unavailable: {address}: connection refused; start it with `cronoq-trio serve`, or name another with "
        "--server or CRONOQ_SERVER\n"
    )


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "server.grpc_addr"),
        (b"220 mail.example.org ESMTP ready and waiting\r\n", "check host and port"),
    ],
)
def test_another_program_is_named(run, answer, words):
    with listener(answer) as port:
        code, out, err = run("get", "1", "--server", f"127.0.0.1:{port}")
    assert (code, out) == (4, "") and err.startswith(f"Error: unavailable: 127.0.0.1:{port}: ") and words in err
    assert err.count("\n") == 1


@pytest.mark.realtime
def test_tls_to_a_server_in_clear(cli, server):
    done = cli("get", "1", "--server", f"https://{server.address}")
    assert done.code == 4 and "TLS" in done.err and "tls=True" not in done.err and done.err.count("\n") == 1


@pytest.mark.realtime
def test_a_server_with_tls_and_a_client_without(run, tmp_path):
    certificates = pytest.importorskip("trustme")
    authority = certificates.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("example.org").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    with listener(b"220 not HTTP/2\r\n", wrap=lambda raw: context.wrap_socket(raw, server_side=True)) as port:
        code, _, err = run("get", "1", "--server", f"https://127.0.0.1:{port}")
        assert code == 4 and "--tls-ca" in err and "PemPaths" not in err
        code, _, err = run("get", "1", "--server", f"127.0.0.1:{port}", "--tls-ca", "ca.pem")
        assert code == 4 and "--tls-domain" in err
        code, _, err = run(
            "get", "1", "--server", f"127.0.0.1:{port}", "--tls-ca", "ca.pem", "--tls-domain", "example.org"
        )
        assert code == 4 and "not accepted" not in err, "the handshake is over, what follows is not HTTP/2"


def test_a_token_in_clear_is_worth_a_warning(run, tmp_path):
    (tmp_path / "token").write_text("  secret-of-this-test \n")
    code, _, err = run("get", "1", "--server", "does-not-exist.invalid:7070", "--token-file", "token")
    warning, error = err.splitlines()
    assert code == 4 and warning.startswith("Warning: the token goes to does-not-exist.invalid:7070 in clear")
    assert "secret-of-this-test" not in err and "resolved" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "x"], "'x' is not an id"),
        (["get", "-5"], "-5"),
        (["get", "18446744073709551616"], "is not an id"),
        (["get", "²"], "is not an id"),
        (["get", "", "--key"], "cannot be empty"),
        (["get"], "TASK"),
        (["wait", "1", "--timeout", "-1"], "--timeout"),
        (["wait", "1", "--timeout", "nan"], "--timeout"),
        (["wait", "1", "--timeout", "soon"], "--timeout"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--status", "lost"], "--status"),
        (["list", "--after", "x"], "--after"),
        (["watch", "--id", "x"], "--id"),
        (["submit", "x", "--wait-timeout", "1"], "--wait"),
        (["submit", "x", "--data", "{}"], "only one of them"),
        (["submit", "--data", "{"], "--data: not JSON"),
        (["submit", "--data", "NaN"], "NaN is not JSON"),
        (["submit", "--data", "[" * 100_000], "nested too deeply"),
        (["submit", "--file", "no-such-file"], "no-such-file: cannot be read"),
        (["submit", "--file", "."], "directory"),
        (["submit", "x", "--tag", "x"], "NAME=VALUE"),
        (["submit", "x", "--label", "x=1", "--label", "x=2"], "given twice"),
        (["submit", "x", "--resource", "gpu=many"], "whole number"),
        (["submit", "x", "--priority", "urgent"], "--priority"),
        (["snapshot", "--token-file", "no-such-file"], "--token-file: no-such-file: cannot be read"),
        (["snapshot", "--token-file", "."], "directory"),
        (["snapshot", "--tls-cert", "x"], "belong together"),
        (["snapshot", "--tls-ca", "no-such-file"], "--tls-ca: no-such-file: cannot be read"),
        (["snapshot", "--tls-ca", "garbage"], "the TLS files cannot be used"),
        (["snapshot", "--tls-ca", "garbage", "--server", "http://localhost:1"], "write https://"),
        (["snapshot", "--server", "localhost"], "--server: "),
        (["snapshot", "--server", "localhost:99999"], "--server: "),
        (["snapshot", "--server", "ftp://localhost:1"], "--server: "),
        (["snapshot", "--tls-domain", "a b", "--server", "https://localhost:1"], "--tls-domain"),
        (["--server"], "--server"),
        (["worker", "no_such_module"], "no module 'no_such_module'"),
        (["worker", "json:no_such_name"], "no 'no_such_name'"),
        (["worker", "json:__version__"], "neither"),
        (["worker", "json:loads", "--slots", "0"], "--slots"),
        (["worker", "json:loads", "--pool", "a", "--pool", "b"], "one pool"),
        (["worker", "broken:tasks"], "ZeroDivisionError: division by zero (broken.py, line 1)"),
        (["worker", "wrong:tasks"], "SyntaxError"),
        (["worker", "leaving:tasks"], "SystemExit: 7"),
        (["worker", "a b:c"], "MODULE:NAME"),
        (["completion", "tcsh"], "bash"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_command_line_that_cannot_be_followed_is_one_sentence_and_exit_2(run, arguments, words):
    Path("garbage").write_text("no certificate")
    Path("broken.py").write_text("1 / 0\n")
    Path("wrong.py").write_text("def (\n")
    Path("leaving.py").write_text("raise SystemExit(7)\n")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ") and err.count("\n") == 1 and words in err


@pytest.mark.parametrize("content", [b"", b" \n", b"two\nlines", b"\xff\xfe", b"x" * 70_000, b"caf\xc3\xa9"])
def test_a_token_that_cannot_be_sent(run, tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    code, out, err = run("snapshot", "--token-file", "token")
    assert (code, out) == (2, "") and "token" in err and err.count("\n") == 1


@pytest.mark.realtime
def test_tokens_and_tls(place, tmp_path):
    """The options of the connection, against a server that asks for all of them."""
    certificates = pytest.importorskip("trustme")
    authority = certificates.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("127.0.0.1", "tasks.example.org")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "cert.pem").write_bytes(b"".join(part.bytes() for part in own.cert_chain_pems))
    (tmp_path / "token").write_text("  the-token-of-this-test\n")
    tables = (
        f'[server.tls]\ncert = "{tmp_path}/cert.pem"\nkey = "{tmp_path}/key.pem"\n'
        '[[auth.tokens]]\ntoken = "the-token-of-this-test"\nrole = "client"\n[[pools]]\nname = "default"\n'
    )
    with Server(tmp_path, pools=tables) as server:
        cli = Cli(tmp_path, CRONOQ_SERVER=f"https://{server.address}")
        trusted = ("--tls-ca", "ca.pem")
        assert cli("submit", "x", *trusted, "--token-file", "token").code == 0
        assert cli("submit", "x", *trusted, CRONOQ_TOKEN=" the-token-of-this-test ").code == 0
        assert cli("submit", "x", *trusted, "--tls-domain", "tasks.example.org", "--token-file", "token").code == 0
        refused = cli("submit", "x", *trusted)
        assert refused.code == 3 and refused.err.startswith("Error: unauthenticated: ")
        assert "--token-file" in refused.err
        refused = cli("workers", *trusted, "--token-file", "token")
        assert refused.code == 3 and refused.err.startswith("Error: permission_denied: ")
        stranger = cli("get", "1")
        assert stranger.code == 4 and "--tls-ca" in stranger.err
        clear = cli("get", "1", "--server", server.address)
        assert clear.code == 4 and "https://" in clear.err
