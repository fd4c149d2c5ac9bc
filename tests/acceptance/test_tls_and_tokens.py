"""TLS and tokens as foreign clients meet them: grpcio with credentials, plain peers, what is wrong at the start."""

import http.client
import socket
import ssl
import time
from contextlib import contextmanager

import grpc
import pytest
import trustme

from cronoq._proto import cronoq_pb2 as pb
from cronoq._proto import cronoq_pb2_grpc as stubs
from tests.acceptance.clients import LARGE, Client, Status, refused, submission
from tests.acceptance.server import HANG, Server, environment, run_cli
from tests.acceptance.workers import Worker, serving

TOKENS = {role: f"canary-{role}-".ljust(40, "x") for role in ("client", "worker", "metrics", "admin")}
WRONG = "canary-wrong-".ljust(40, "y")
ENTRIES = "".join(f'[[auth.tokens]]\nrole = "{role}"\ntoken = "{token}"\n' for role, token in TOKENS.items())


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    return folder


def tls(files):
    return f'[server.tls]\ncert = "{files / "cert.pem"}"\nkey = "{files / "key.pem"}"\n'


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    environ = environment(CRONOQ_LOG="debug")
    server = Server(tmp_path_factory.mktemp("server"), "sqlite", extra=tls(files) + ENTRIES, environ=environ)
    with server:
        yield server
        assert server.stop() == 0
    server.check_log()
    log = server.log.read_text()
    assert "a TLS handshake failed" in log, "the log says much"
    assert "canary" not in log, "and never a token"


@pytest.fixture
def connect(authority, server):
    @contextmanager
    def connect(token=None, roots=None, **options):
        credentials = grpc.ssl_channel_credentials(roots or authority.cert_pem.bytes())
        if token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
        options = [*LARGE, ("grpc.use_local_subchannel_pool", 1), *options.items()]
        with grpc.secure_channel(f"localhost:{server.port}", credentials, options=options) as channel:
            yield Client(channel)

    return connect


def test_a_task_goes_through_with_a_token_for_each_part(connect):
    with connect(TOKENS["client"]) as client, connect(TOKENS["worker"]) as other, serving(other.channel):
        for size in (0, 1, 70_000, 3_000_000):
            payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
            assert client.submit(wait=True, payload=payload).result.output == payload
        client.submit(key="held")
        assert client.get("held").id
    with connect(TOKENS["metrics"]) as client:
        assert client.snapshot().totals.succeeded >= 4
    with connect(TOKENS["admin"]) as client:
        assert client.submit().id and client.snapshot().totals.submitted


METHODS = {
    f"/cronoq.v1.{service.name}/{method.name}": method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def first_answer(channel, path, messages):
    """Status and text of a call of any shape; OK when the first message came."""
    call = channel.stream_stream(path)(iter(messages), timeout=HANG)
    try:
        next(call, None)
    except grpc.RpcError as error:
        return error.code(), error.details()
    code, details = call.code(), call.details()
    call.cancel()
    return code, details


@pytest.mark.parametrize("path", METHODS)
def test_missing_and_wrong_credentials_get_one_and_the_same_answer(connect, path):
    answers = set()
    for token in (None, WRONG, TOKENS["admin"][:-1]):
        with connect(token) as client:
            answers.add(first_answer(client.channel, path, [b"\xff not even a message"]))
    assert len(answers) == 1
    assert answers.pop()[0] is Status.UNAUTHENTICATED


@pytest.mark.parametrize("role", TOKENS)
def test_a_role_opens_its_methods_alone(connect, role):
    own = {"client": "Tasks/", "worker": "Workers/", "metrics": "Admin/"}
    with connect(TOKENS[role]) as client:
        for path in METHODS:
            code, details = first_answer(client.channel, path, [])
            allowed = own.get(role, "") in path and not (role == "metrics" and path.endswith("Recurring"))
            if path.endswith("/ListRecurring") and role == "metrics":
                allowed = True
            assert (code is not Status.PERMISSION_DENIED) is allowed, (path, code, details)
            assert code is not Status.UNAUTHENTICATED


def test_a_worker_stream_needs_its_role_before_it_says_anything(connect):
    with connect(TOKENS["client"]) as client, Worker(client.channel, register=False) as worker:
        assert worker.ended()[0] is Status.PERMISSION_DENIED
    with connect() as client, Worker(client.channel, register=False) as worker:
        assert worker.ended()[0] is Status.UNAUTHENTICATED


def test_the_scheme_may_be_written_in_any_case(authority, server):
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
        tasks = stubs.TasksStub(channel)
        for scheme in ("Bearer", "bearer", "BEARER"):
            metadata = [("authorization", f"{scheme} {TOKENS['client']}")]
            assert tasks.Submit(submission(), metadata=metadata, timeout=HANG).id
        with refused(Status.UNAUTHENTICATED):
            tasks.Submit(submission(), metadata=[("authorization", TOKENS["client"])], timeout=HANG)


def test_a_client_that_does_not_trust_the_certificate_cannot_connect(connect):
    with connect(TOKENS["client"], roots=trustme.CA().cert_pem.bytes()) as client, refused(Status.UNAVAILABLE):
        client.tasks.Submit(submission(), timeout=HANG)


def test_a_plain_client_on_the_tls_port_is_refused(server):
    with grpc.insecure_channel(server.address) as channel, refused(Status.UNAVAILABLE):
        stubs.TasksStub(channel).Submit(submission(), timeout=HANG)
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), HANG) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while plain.recv(1_000):
            pass
    assert time.monotonic() - begun < 3


def test_a_silent_client_has_five_seconds_for_the_handshake_and_others_do_not_notice(server, connect):
    with socket.create_connection(("127.0.0.1", server.port), HANG) as silent:
        begun = time.monotonic()
        with connect(TOKENS["client"]) as client:
            assert client.submit().id
        assert silent.recv(1) == b""
        assert 3 < time.monotonic() - begun < 10


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_alpn_and_versions(authority, server, version):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.minimum_version = context.maximum_version = version
    for port in (server.port, server.http_port):
        plain = socket.create_connection(("127.0.0.1", port), HANG)
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            assert secure.selected_alpn_protocol() == "h2"
            assert secure.version() == version.name.replace("_", ".")


def test_health_is_asked_for_over_tls_without_credentials(authority, server):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    connection = http.client.HTTPSConnection("localhost", server.http_port, context=context, timeout=HANG)
    for path, body in (("/readyz", b"ready"), ("/healthz", b"ok")):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, body)
    connection.close()
    plain = http.client.HTTPConnection("localhost", server.http_port, timeout=HANG)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.request("GET", "/healthz")
        plain.getresponse()


# --- starts


def configure(folder, text):
    path = folder / "cronoq.toml"
    path.write_text(f'[server]\ngrpc_addr = "127.0.0.1:0"\nhttp_addr = "127.0.0.1:0"\n{text}')
    return str(path)


def both_refuse(folder, text, *words):
    """`check` and `serve` say the same: sentences with all the words, and no token."""
    config = configure(folder, text)
    errors = []
    for command in ("check", "serve"):
        done = run_cli(command, "--config", config, folder=folder)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert all(line.startswith("Error: ") for line in done.stderr.splitlines())
        assert all(word in done.stderr for word in words), done.stderr
        assert "canary" not in done.stderr + done.stdout
        errors.append(done.stderr)
    return errors


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('token_env = "NOT_SET_ANYWHERE"', ["token_env", "NOT_SET_ANYWHERE", "not set"]),
        ('token = "canary"', ["token: the token has 6 characters", "at least 16"]),
        (f'token = "{WRONG}"\ntoken_env = "X"', ["exactly one"]),
        (f'token = "{WRONG}"\npools = ["default"]', ["pools", "not built in this version"]),
        (f'token = "{WRONG}"\n[[auth.tokens]]\nrole = "admin"\ntoken = " {WRONG} "', ["unique"]),
        ('token_env = "canary-is-not-a-name"', ["environment variable"]),
    ],
)
def test_tokens_that_cannot_be_used_are_known_beforehand(tmp_path, entry, words):
    both_refuse(tmp_path, f'[[auth.tokens]]\nrole = "client"\n{entry}\n', *words)


def test_tls_files_that_cannot_be_used_are_known_beforehand(tmp_path, files):
    text = tls(files).replace("key.pem", "cert.pem")
    check, serve = both_refuse(tmp_path, text, "server.tls.key", "cert.pem", "private key")
    assert check.partition("server.tls")[2] == serve.partition("server.tls")[2]


def test_addresses_beyond_loopback_need_tokens_and_clear_tokens_are_warned_about(tmp_path, files):
    config = tmp_path / "cronoq.toml"
    address = '[server]\ngrpc_addr = "0.0.0.0:0"\nhttp_addr = "127.0.0.1:0"\n'
    config.write_text(address)
    done = run_cli("check", "--config", str(config), folder=tmp_path)
    assert done.returncode == 1 and "[[auth.tokens]]" in done.stderr
    config.write_text(address + ENTRIES)
    done = run_cli("check", "--config", str(config), folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "valid\n")
    assert "Note: " in done.stderr and "tokens travel in clear" in done.stderr
    config.write_text(address + tls(files) + ENTRIES)
    done = run_cli("check", "--config", str(config), folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "valid\n", "")


def test_a_token_from_the_environment(start, tmp_path):
    entry = '[[auth.tokens]]\nrole = "client"\ntoken_env = "SOME_TOKEN"\n'
    server = start("memory", extra=entry, environ=environment(SOME_TOKEN=f" {WRONG}\n", CRONOQ_LOG="debug"))
    assert "tokens: 1 client" in server.output()
    with grpc.insecure_channel(server.address) as channel:
        tasks = stubs.TasksStub(channel)
        assert tasks.Submit(submission(), metadata=[("authorization", f"Bearer {WRONG}")], timeout=HANG).id
        with refused(Status.UNAUTHENTICATED):
            tasks.Submit(submission(), timeout=HANG)
    assert "canary" not in server.output()
