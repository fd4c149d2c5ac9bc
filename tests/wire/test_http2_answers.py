"""The usual call on an HTTP/2 client: a request that goes out in one piece, an answer that is taken whole."""

from hpack import Decoder, Encoder

from cronoq_sansio import limits
from cronoq_sansio.wire import http2_words as words
from cronoq_sansio.wire.http2_events import Answer, ClientSideEvent, Data, ResetByServer, Response, Trailers
from tests.wire import raw
from tests.wire.http2_peer import FIELDS, OK, START, data, goaway, greeted, headers, number, opened, output, plain

# --- answers that are recognised whole


def indexed(encoder: Encoder, stream_id: int, fields: list[tuple[bytes, bytes]], *, end: bool = False) -> bytes:
    flags = raw.END_HEADERS | (raw.END_STREAM if end else 0)
    return raw.frame(raw.HEADERS, flags, stream_id, encoder.encode(fields))


LAST = [(b"grpc-status", b"0")]


def whole(encoder: Encoder, stream_id: int, body: bytes = b"answer") -> bytes:
    head = indexed(encoder, stream_id, OK)
    return head + data(stream_id, body) + indexed(encoder, stream_id, LAST, end=True)


def test_an_answer_that_comes_again_is_one_event_of_one_object() -> None:
    machine, encoder = greeted(), Encoder()
    for _ in range(4):
        opened(machine, end=True)
    kinds = [[type(event) for event in machine.receive(whole(encoder, stream), START)] for stream in (1, 3)]
    assert kinds == [[Response, Data, Trailers]] * 2, "blocks are kept once they change nothing"
    first, second = machine.receive(whole(encoder, 5) + whole(encoder, 7, b""), START)
    assert isinstance(first, Answer) and isinstance(second, Answer)
    assert (first.stream_id, first.data, second.stream_id, second.data) == (5, b"answer", 7, b"")
    assert first.headers.fields == OK and first.trailers.fields == LAST
    assert second.headers is first.headers and second.trailers is first.trailers
    assert machine.next_timeout() is None, "nothing is open"


def test_an_answer_in_pieces_is_the_same_in_three_events() -> None:
    machine, encoder = greeted(), Encoder()
    for stream in (1, 3, 5):
        opened(machine, end=True)
        said = whole(encoder, stream)
        events: list[ClientSideEvent] = []
        for at in range(len(said)):
            events += machine.receive(said[at : at + 1], START)
        assert [type(event) for event in events] == [Response, Data, Trailers]
    assert machine.next_timeout() is None


def test_what_is_not_as_usual_is_not_taken_whole() -> None:
    """Each of these differs in one thing from an answer that would be."""
    encoder = Encoder()
    machine = greeted()
    for _ in range(12):
        opened(machine, end=True)
    machine.receive(whole(encoder, 1) + whole(encoder, 3), START)
    head, last = indexed(encoder, 5, OK), indexed(encoder, 5, LAST, end=True)

    def kinds(said: bytes) -> list[type]:
        return [type(event) for event in machine.receive(said, START)]

    assert kinds(head + data(5, b"x") + data(5, b"y") + last) == [Response, Data, Data, Trailers]
    padded = raw.frame(raw.DATA, raw.PADDED, 7, b"\x01x\0")
    assert kinds(indexed(encoder, 7, OK) + padded + indexed(encoder, 7, LAST, end=True)) == [Response, Data, Trailers]
    assert kinds(indexed(encoder, 9, OK) + data(9, b"x", end=True)) == [Response, Data]
    swapped = indexed(encoder, 11, OK) + data(13, b"x") + indexed(encoder, 11, LAST, end=True)
    assert kinds(swapped) == [Response, ResetByServer, Trailers], "data of another stream"
    assert kinds(indexed(encoder, 15, LAST) + data(15, b"x") + indexed(encoder, 15, OK, end=True)) == [ResetByServer]
    assert kinds(indexed(encoder, 17, OK) + data(17, b"x") + indexed(encoder, 17, OK, end=True)) == [
        Response,
        Data,
        ResetByServer,
    ], "headers instead of trailers"
    assert kinds(indexed(encoder, 19, OK)) == [Response]
    assert kinds(whole(encoder, 19)) == [ResetByServer], "headers twice"
    crossed = indexed(encoder, 21, OK) + data(21, b"x") + indexed(encoder, 23, LAST, end=True)
    assert kinds(crossed) == [Response, Data, ResetByServer], "trailers of another stream"
    assert kinds(indexed(encoder, 21, LAST, end=True)) == [Trailers]
    half_open = opened(machine)
    assert kinds(whole(encoder, half_open)) == [Response, Data, Trailers], "we have not ended"
    assert kinds(whole(encoder, opened(machine, end=True))) == [Answer] and not machine.closed


def test_an_answer_that_is_whole_moves_the_window_of_the_connection() -> None:
    machine, encoder = greeted(), Encoder()
    frames = limits.CONNECTION_WINDOW // 2 // 16_384 + 1
    for number_ in range(frames + 1):
        stream = opened(machine, end=True)
        machine.receive(whole(encoder, stream, bytes(16_384)), START)
        assert bool(output(machine)) is (number_ == frames - 1)


def test_the_last_answer_after_a_farewell_closes() -> None:
    machine, encoder = greeted(), Encoder()
    for stream in (1, 3):
        opened(machine, end=True)
        machine.receive(whole(encoder, stream), START)
    opened(machine, end=True)
    machine.receive(goaway(5), START)
    assert not machine.closed
    assert [type(event) for event in machine.receive(whole(encoder, 5), START)] == [Answer]
    assert machine.closed


# --- requests in one piece


def test_a_request_that_is_all_there_goes_out_in_one_piece() -> None:
    machine = greeted()
    assert machine.ask(FIELDS, b"question", START) == 1
    (kind, flags, stream, body), asked = output(machine)
    assert (kind, flags, stream) == (raw.HEADERS, raw.END_HEADERS, 1)
    decoder = Decoder()
    assert decoder.decode(body, raw=True) == list(FIELDS)
    assert asked == (raw.DATA, raw.END_STREAM, 1, b"question")
    machine.send_data(1, b"late")
    assert output(machine) == [], "it has ended"
    machine.ask(FIELDS, b"question", START)
    assert plain(machine.receive(headers(1) + data(1, b"a") + headers(1, *LAST, end=True), START))[0][1] == 1
    machine.ask(FIELDS, b"question", START)
    assert len(output(machine)[0][3]) == len(FIELDS), "an octet for each field: they were indexed"


def test_a_request_that_does_not_fit_the_windows_is_left_to_its_owner() -> None:
    machine = greeted(initial_window_size=10)
    assert machine.ask(FIELDS, bytes(11), START) == 0 and output(machine) == []
    assert machine.ask(FIELDS, bytes(10), START) == 1 and machine.sendable(1) == 0
    machine = greeted(initial_window_size=1 << 20, max_frame_size=1 << 20)
    assert machine.ask(FIELDS, bytes(65_536), START) == 0, "the window of the connection"
    assert machine.ask(FIELDS, bytes(65_535), START) == 1
    assert machine.ask(FIELDS, b"x", START) == 0 and machine.window == 0
    machine.receive(raw.frame(raw.WINDOW_UPDATE, 0, 0, number(1 << 20)), START)
    assert machine.ask(FIELDS, bytes(words.MAX_DATA + 1), START) == 0, "other streams want a turn"
    assert greeted().ask(FIELDS, bytes(16_385), START) == 0, "the largest frame"


def test_a_request_whose_headers_take_several_frames() -> None:
    machine = greeted()
    fields = ((b":path", b"/" + b"\xff" * 40_000),)
    machine.ask(fields, b"question", START)
    sent = output(machine)
    assert [kind for kind, *_ in sent[:-1]] == [raw.HEADERS] + [raw.CONTINUATION] * (len(sent) - 2) and len(sent) > 3
    assert sent[-1] == (raw.DATA, raw.END_STREAM, 1, b"question")
