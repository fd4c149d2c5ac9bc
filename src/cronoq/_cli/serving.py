"""`serve` runs the server, `check` says beforehand whether it would start, `init` writes a configuration for it."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from cronoq._cli.failures import DONE, usage
from cronoq.errors import ConfigError
from cronoq_sansio.limits import MIN_RECORDING_BYTES, RECORDING_BYTES

FILE = "cronoq.toml"
"""Where `serve` looks for its configuration."""

Config = Annotated[str | None, Parameter(name=["--config", "-c"], negative="")]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Record = Annotated[str | None, Parameter(negative="", show_default=False)]
RecordBytes = Annotated[int | None, Parameter(negative="", show_default=False)]


def serve(
    *,
    config: Config = None,
    memory: Flag = False,
    insecure_no_auth: Flag = False,
    record: Record = None,
    record_bytes: RecordBytes = None,
) -> int:
    """Run the server until SIGTERM or SIGINT; a second signal forces the stop.

    Parameters
    ----------
    config:
        TOML file. Without it: the file that CRONOQ_CONFIG names, ./cronoq.toml, or the built-in configuration
        (one pool `default`, loopback only, SQLite in ./cronoq.db).
    memory:
        Keep tasks in memory only, whatever the configuration says.
    insecure_no_auth:
        Allow addresses beyond loopback although nobody has to authenticate.
    record:
        Write everything that the core is told to this new file, without payloads, outputs and credentials, so that
        `python -m cronoq_sansio.sim --replay FILE` can repeat it. When the server starts anew from its store, and when
        the file is there already, it is FILE with .2, .3, … before its suffix.
    record_bytes:
        Bytes of such a file, at which its recording stops and the server goes on without; 1 GiB if not given.
    """
    from cronoq.config import load

    limit = _record_limit(record, record_bytes)
    loaded = load(config, memory=memory, insecure_no_auth=insecure_no_auth)
    from cronoq._runtime.serve import run

    if record is None:
        return run(loaded.settings, config_source=loaded.source)
    from cronoq._runtime.recording_files import Recordings
    from cronoq.errors import StartError
    from cronoq_sansio.recording.format import too_many_pools

    if too_many := too_many_pools(loaded.settings):
        raise StartError(f"--record {record}: {too_many}")
    recordings = Recordings(record, limit, loaded.settings.store.path)
    try:
        return run(loaded.settings, config_source=loaded.source, recordings=recordings)
    finally:
        recordings.discard()


def _record_limit(record: str | None, given: int | None) -> int:
    """Bytes of a recording."""
    if given is None:
        return RECORDING_BYTES
    if record is None:
        usage("--record-bytes: it needs --record FILE")
    if given < MIN_RECORDING_BYTES:
        usage(f"--record-bytes: found {given}; allowed is at least {MIN_RECORDING_BYTES}")
    return given


def check(*, config: Config = None, memory: Flag = False, insecure_no_auth: Flag = False) -> int:
    """Say whether `serve` with the same options would start: print `valid`, or every reason why not.

    A server that runs on the same SQLite file now is taken for the one to be replaced, and only noted on stderr.

    Parameters
    ----------
    config:
        As for `serve`.
    memory:
        As for `serve`.
    insecure_no_auth:
        As for `serve`.
    """
    from cronoq._cli.prediction import predict
    from cronoq.config import load

    loaded = load(config, memory=memory, insecure_no_auth=insecure_no_auth)
    prediction = predict(loaded.settings, os.environ.get("CRONOQ_LOG", ""))
    for note in prediction.notes:
        print(f"Note: {loaded.source}: {note}", file=sys.stderr)
    if prediction.problems:
        raise ConfigError(tuple(f"{loaded.source}: {problem}" for problem in prediction.problems))
    print("valid")
    return 0


def init(path: str = FILE, /) -> int:
    """Write a commented configuration file to begin with; it is never written over one that exists.

    Parameters
    ----------
    path:
        Where to; without it ./cronoq.toml, where `serve` looks for it.
    """
    from cronoq._cli.sample import sample

    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(sample())
    except FileExistsError:
        usage(f"{path} exists already; name another file, or remove it first")
    except (OSError, ValueError) as error:
        usage(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}")
    serve = "cronoq-trio serve" if os.path.normpath(path) == FILE else f"cronoq-trio serve --config {path}"
    print(f"wrote {path}; start the server with `{serve}`")
    return DONE
