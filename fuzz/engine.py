"""How a fuzz target runs: its corpus first, then what a seeded generator makes of it, until the time is up.

    python fuzz/NAME.py [--seconds 10] [--seed N] [--atheris] [FILE …]

A target is a function of bytes that fails when its invariant, line 1 of its file, does not hold. It is fed with inputs
of its corpus (`fuzz/corpus/NAME`), changed here and there, joined and cut. What makes it fail is written into the
corpus as it is, so that the tests run it from then on, and its path is printed. FILE: run these alone.

With `--atheris` the coverage-guided fuzzer of that name makes the inputs instead, where it is installed.
"""

import argparse
import hashlib
import importlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

Target = Callable[[bytes], None]
Mutate = Callable[[bytes, Random], bytes]

CORPUS = Path(__file__).resolve().parent / "corpus"
GUIDES = ("cronoq_sansio", "h2", "hpack", "hyperframe")
"""Packages whose coverage guides atheris."""
MAX_INPUT = 1 << 17
MAX_LIVE = 500
"""Inputs that are changed further; beyond, a random one makes room."""


def corpus(name: str) -> list[bytes]:
    """The kept inputs of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))]


def change(data: bytes, random: Random) -> bytes:
    """A few bytes changed, put in, taken out or repeated."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(5)
        if kind == 0:
            changed[at:at] = random.randbytes(random.choice((1, 2, 9)))
        elif kind == 1:
            del changed[at : at + random.choice((1, 2, 9, 40))]
        elif kind == 2:
            changed[at:at] = changed[at : at + random.choice((1, 9, 40))] * random.choice((1, 2, 5))
        elif at < len(changed):
            changed[at] = random.choice((0, 1, 127, 128, 255, random.randrange(256), changed[at] ^ 1 << at % 8))
    return bytes(changed[:MAX_INPUT])


def explore(target: Target, seeds: Sequence[bytes], mutate: Mutate, seconds: float, random: Random) -> int:
    """Run the target until the time is up or it fails; how many inputs it had. Raises `Failure`."""
    live = list(seeds)
    count = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutate(random.choice(live), random)
        if random.randrange(4) == 0:
            other = random.choice(live)
            data = (data + other if random.randrange(2) else data[: len(data) // 2] + other)[:MAX_INPUT]
        attempt(target, data)
        count += 1
        if random.randrange(20) == 0:
            if len(live) < MAX_LIVE:
                live.append(data)
            else:
                live[random.randrange(len(seeds), MAX_LIVE)] = data
    return count


class Failure(Exception):
    """An input for which the invariant does not hold."""

    def __init__(self, data: bytes) -> None:
        super().__init__(f"{len(data)} bytes")
        self.data = data


def attempt(target: Target, data: bytes) -> None:
    """Run the target once. Raises `Failure`."""
    try:
        target(data)
    except Exception as error:
        raise Failure(data) from error


def main(target: Target, file: str, mutate: Mutate = change) -> int:
    """The command line of a target; the exit code."""
    name = Path(file).stem
    parser = argparse.ArgumentParser(prog=f"fuzz/{name}.py")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the generator; another one each time without it")
    parser.add_argument("--atheris", action="store_true", help="make the inputs with atheris")
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.atheris:
        return guided(name, arguments.seconds)
    seed = time.time_ns() if arguments.seed is None else arguments.seed
    inputs = [path.read_bytes() for path in arguments.files] or corpus(name)
    try:
        for data in inputs:
            attempt(target, data)
        count = 0 if arguments.files else explore(target, inputs, mutate, arguments.seconds, Random(seed))
    except Failure as failure:
        traceback.print_exception(failure.__cause__)
        path = CORPUS / name / f"found-{hashlib.sha256(failure.data).hexdigest()[:12]}.bin"
        path.write_bytes(failure.data)
        print(f"{name}: the invariant does not hold for {path} (seed {seed})", file=sys.stderr)
        return 1
    print(f"{name}: {len(inputs)} inputs of the corpus and {count} others, no finding (seed {seed})")
    return 0


def guided(name: str, seconds: float) -> int:
    """Run under atheris, which ends the process itself and leaves what it finds in `.cache/fuzz`."""
    try:
        import atheris
    except ImportError:
        print("atheris is not installed; without --atheris it is not needed", file=sys.stderr)
        return 2
    for module in [module for module in sys.modules if module.partition(".")[0] in ("fuzz", "tests", *GUIDES)]:
        del sys.modules[module]
    with atheris.instrument_imports(include=list(GUIDES)):
        target = importlib.import_module(f"fuzz.{name}").check
    found = CORPUS.parent.parent / ".cache" / "fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={int(seconds)}", f"-artifact_prefix={found}/"]
    atheris.Setup([sys.argv[0], *options, str(found), str(CORPUS / name)], target)
    atheris.Fuzz()
    return 0
