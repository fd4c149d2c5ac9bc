"""The page of hostile peers: what others feel of each flood, and what idle connections cost, as it was measured."""

import json
from pathlib import Path
from typing import Any

from tests.acceptance.flooder import KINDS

LEDGER = Path(__file__).resolve().parent.parent / "bench" / "connections.json"
WITHOUT = "flood.rapid_reset.without_addresses"

HEAD = """# Hostile peers

`tests/acceptance/test_floods.py` plays each kind of flood from a process of its own, which connects again as soon as it
is closed, while somebody else makes one call after the other on another connection. The tests assert that nobody hangs
and that the server has noticed. With a path in `CRONOQ_LEDGER` they play for longer and write down how the latency of
the calls compares with a process that only uses a processor:

    export CRONOQ_LEDGER=bench/connections.json
    make setup
    .venv/bin/python -m pytest tests/acceptance/test_floods.py tests/acceptance/test_idle_connections.py

The page is made from that file. Server, caller and flood share {cpus} processors, so the process beside which the calls
are usual is as greedy as a flood; what the calls wait is then also what the scheduler of the system makes of three
processes, and of all others on the machine. So the server's work between a call and its answer is measured as well: its
own time on a processor, for this call and for whatever it does before. It does not depend on others, but for one thing:
where the caller itself waits for a processor, the server goes on with the flood meanwhile. The scheduler gives a
processor away for 3 or 4 ms, and that is what the 99th percentile shows of floods that keep the server busy for long.

## What others feel

Ratios during the flood to the usual, of the server's work before an answer and of the latency: the median of {rounds}
rounds, with the smallest and the largest. Measured on {measured} with Python {python} on {system}.

| flood | work, p50 | work, p99 | latency, p50 | latency, p99 | slowest call, ms | calls | connections of the flood |
|---|---:|---:|---:|---:|---:|---:|---:|
"""

IDLE = """
`{without}` is the same with `max_connections_per_peer = 0`: whoever is closed comes back at once, since nothing is held
against its address. All others have an address of their own, from which they are kept out for a while.

## What an idle connection costs

| what | of | bytes each |
|---|---:|---:|
"""

VALID = """
## Valid calls that cost much

Lists, and messages that are small only as long as they are compressed, break no rule. What one peer asks for of them in
one go is done in portions: messages [are inflated in parts](../operating/peers.md#how-much-is-inflated-at-once), and
lists [have turns](../operating/peers.md#how-many-lists-at-once). How much there is of one, and whose turn is next, is
tested without a clock: `tests/wire/test_inflation.py` and `test_turns.py`; that the whole server keeps to it,
`tests/runtime/test_fair_turns.py`. One round of five or six seconds each on a busy machine of two processors, before
the portions and with them; milliseconds of somebody else's `Submit`. Without such a peer half of these took 0.5 there,
and 6 from an SQLite file:

| peer | p50 before | p99 before | p50 | p99 | slowest |
|---|---:|---:|---:|---:|---:|
| 1,000 pages of 1,000 tasks of 20,000, at once | 0.7 | 5,618 | 0.6 | 19.9 | 24.5 |
| the same on each of four connections | 0.5 | 15,430 | 0.7 | 33.3 | 37.5 |
| the same on one, from an SQLite file | 27.2 | 1,549 | 6.3 | 60.6 | 90.9 |
| on four, from an SQLite file | 30.3 | 3,880 | 10.6 | 81.7 | 84.2 |
| 1,000 lists with a filter that lets nothing pass | 0.5 | 4,189 | 0.6 | 11.6 | 15.7 |
| messages of 16 KB that are 16 MB inside | 53.7 | 356 | 1.2 | 17.4 | 24.9 |

The next `Submit` is sent when the one before it is answered, so before there were only seven of them in five seconds.
"""

TIME = """
## What is played in virtual time

What takes half a minute or more is played against the whole server with a clock that jumps, on both HTTP/2 machines:
every limit of [what a peer runs into](../reference/limits.md#what-a-peer-runs-into) in
`tests/runtime/test_peer_limits.py`, among them messages and answers that move a byte at a time, and answers that 15
connections leave waiting. The same by tables, without a server: `tests/wire/test_slow_messages.py`,
`test_slow_answers.py`, `test_backlog.py`, `test_unfinished_frames.py`.
"""

ABOUT = {
    "idle.http2.nothing": "the HTTP/2 machine alone, greeted",
    "idle.http2.a_call": "the same after a call",
    "idle.grpc.nothing": "with gRPC above it, greeted",
    "idle.grpc.a_call": "the same after a call",
    "idle.server.nothing": "the whole server in cleartext, greeted (growth of VmRSS)",
    "idle.server.a_call": "the same after a call",
}


def page() -> str:
    """The whole page."""
    figures: dict[str, Any] = json.loads(LEDGER.read_text(encoding="utf-8"))
    first = figures[f"flood.{next(iter(KINDS))}"]
    text = HEAD.format(**first)
    for name in [*(f"flood.{kind}" for kind in KINDS), WITHOUT]:
        text += row(name.removeprefix("flood.").replace("_", " ").replace(".", ", "), figures[name])
    text += IDLE.format(without=WITHOUT.removeprefix("flood.").replace("_", " ").replace(".", ", "))
    for name, about in ABOUT.items():
        found = figures[name]
        text += f"| {about} | {found['connections']:,} | {found['bytes_each']:,} |\n"
    return text + VALID + TIME


def row(name: str, found: dict[str, Any]) -> str:
    """One kind."""
    ratios = (
        f"{found[f'{which}_ratio']:.2f} ({found[f'{which}_ratio_low']:.2f} … {found[f'{which}_ratio_high']:.2f})"
        for which in ("p50_work", "p99_work", "p50", "p99")
    )
    cells = (name, *ratios, f"{found['slowest_ms']:,}", f"{found['calls']:,}", f"{found['connections']:,}")
    return f"| {' | '.join(cells)} |\n"
