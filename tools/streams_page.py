"""The page about the states of an HTTP/2 stream: its diagram and its table, from the table that the machine obeys."""

from cronoq_sansio.wire.http2_streams import Breach, Input, State, table

STATES = {
    State.IDLE: "idle",
    State.OPEN: "open",
    State.REMOTE_ENDED: "half-closed (remote)",
    State.LOCAL_ENDED: "half-closed (local)",
    State.ENDED: "ended",
    State.RESET: "reset",
    State.DROPPED: "dropped",
    State.SKIPPED: "skipped",
}
MEANINGS = {
    State.IDLE: "no HEADERS so far",
    State.OPEN: "both sides may send",
    State.REMOTE_ENDED: "the peer has ended",
    State.LOCAL_ENDED: "we have ended",
    State.ENDED: "both have",
    State.RESET: "the peer has sent RST_STREAM",
    State.DROPPED: "we have sent RST_STREAM: what was on its way means nothing",
    State.SKIPPED: "never used: a stream with a higher id was opened first",
}
INPUTS = {
    Input.HEADERS: "HEADERS",
    Input.HEADERS_END: "HEADERS, END_STREAM",
    Input.DATA: "DATA",
    Input.DATA_END: "DATA, END_STREAM",
    Input.RST_STREAM: "RST_STREAM",
    Input.WINDOW_UPDATE: "WINDOW_UPDATE",
}
BREACHES = {
    Breach.LATE: "not looked at",
    Breach.STREAM: "stream error `STREAM_CLOSED`",
    Breach.CLOSED: "connection error `STREAM_CLOSED`",
    Breach.PROTOCOL: "connection error `PROTOCOL_ERROR`",
}
CLOSED = (State.ENDED, State.RESET, State.DROPPED, State.SKIPPED)
"""States in which nothing is left of a stream; RFC 9113 calls all of them closed."""
END, RESET = "our END_STREAM", "our RST_STREAM"


def moves(state: State) -> list[tuple[str, State]]:
    """What leads out of a state, the peer's frames first, and where to."""
    row = table(server=True)[state]
    found = [(INPUTS[frame], State(row[frame])) for frame in Input if row[frame] in iter(State) and row[frame] != state]
    if state in (State.OPEN, State.REMOTE_ENDED):
        found.append((END, State(state | State.LOCAL_ENDED)))
    if state < State.ENDED:
        found.append((RESET, State.DROPPED))
    return found


def diagram() -> str:
    """Each state that has a way out, with its ways."""
    lines = []
    for state in STATES:
        targets: dict[State, list[str]] = {}
        for what, target in moves(state):
            targets.setdefault(target, []).append(what)
        for number, (target, causes) in enumerate(targets.items()):
            head = STATES[state] if number == 0 else ""
            arrow = f" {' | '.join(causes)} ".center(54, "─")
            lines.append(f"{head:<20} {'├' if number else '┬' if len(targets) > 1 else '─'}{arrow}> {STATES[target]}")
        if targets:
            lines.append("")
    return "\n".join(lines[:-1])


def page() -> str:
    """The whole page."""
    text = f"""# The states of a stream

RFC 9113 section 5.1, as the server's machine keeps them. What RFC 9113 calls closed is four states here, because what a
late frame means depends on how the stream came to its end.

```text
{diagram()}
```

Whenever a stream with a higher id is opened, those below it that are idle are skipped. PRIORITY may come in every state
and does nothing.

| state | meaning |
|---|---|
"""
    text += "".join(f"| {name} | {MEANINGS[state]} |\n" for state, name in STATES.items())
    text += "\n## What each frame of the peer does\n\n"
    text += (
        "HEADERS on a stream that is open already are trailers, and these end it (section 8.1): without END_STREAM\n"
    )
    text += "the state would allow them, and the stream is reset with `PROTOCOL_ERROR` all the same.\n\n"
    text += f"| state | {' | '.join(INPUTS.values())} |\n|---{'|---' * len(INPUTS)}|\n"
    rows = table(server=True)
    for state, name in STATES.items():
        cells = (STATES[State(cell)] if cell in iter(State) else BREACHES[Breach(cell)] for cell in rows[state])
        text += f"| {name} | {' | '.join(cells)} |\n"
    return (
        text
        + """
A stream error is answered with RST_STREAM, after which the stream is dropped; a connection error ends the connection.
To a client the server opens no streams: there every frame on an idle stream is `PROTOCOL_ERROR`.
"""
    )
