"""`recurring preview`: when a schedule would fire. It needs no server."""

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from cronoq._cli.arguments import Json, Text
from cronoq._cli.failures import DONE, usage
from cronoq_sansio.clock import SECOND

if TYPE_CHECKING:
    from cronoq_sansio.engine.cron import Cron
    from cronoq_sansio.engine.cron_preview import Preview

FIRES = 10
MOST_FIRES = 1_000
"""Enough for a year of workdays; a second or less to find."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def preview(
    cron: str,
    /,
    *,
    tz: Text = None,
    count: int = FIRES,
    begin: Annotated[str | None, Parameter(name="--from", show_default=False)] = None,
    dst_gap: Literal["shift", "skip"] = "shift",
    dst_fold: Literal["first", "last", "both"] = "first",
    json: Json = False,
) -> int:
    """List the next fires of a cron expression in local time and UTC, without a server.

    Fires that day-light saving moves are marked, and those at local times that come twice.

    Parameters
    ----------
    cron:
        Five fields as in crontab, or six with seconds first; in quotes: "30 2 * * *".
    tz:
        Zone of the times in CRON, as in `Europe/Berlin`; without it UTC.
    count:
        How many, 1 to 1000.
    begin:
        List fires from this time on: `2027-03-14T00:00:00Z`, or without an offset a local time of the zone. Without
        it from now on.
    dst_gap:
        What happens to a time that the clocks skip: `shift` to the first valid instant after it, or `skip`.
    dst_fold:
        Which pass of a time that the clocks repeat counts, unless every hour does: `first`, `last` or `both`.
    json:
        Print a JSON document instead: `fires`, and what was asked.
    """
    from cronoq._cli.printing import document, note
    from cronoq_sansio.engine import cron_preview
    from cronoq_sansio.engine.cron import TZDATA_VERSION, compile_cron

    if not 1 <= count <= MOST_FIRES:
        usage(f"--count: {count} is not from 1 to {MOST_FIRES}")
    zone = tz or "UTC"
    compiled = compile_cron(cron, zone, dst_gap, dst_fold)
    if isinstance(compiled, str):
        usage(compiled)
    fires = cron_preview.preview(compiled, time.time_ns() if begin is None else _moment(begin, compiled), count)
    if not fires:
        usage("cron: it does not fire before 2200")
    if json:
        asked = {"cron": cron, "tz": zone, "dst_gap": dst_gap, "dst_fold": dst_fold, "tzdata": TZDATA_VERSION}
        document({**asked, "fires": [_document(fire) for fire in fires]})
        return DONE
    _print(fires)
    if len(fires) < count:
        note("No more before 2200")
    print(f"\n{zone}, by the rules of tzdata {TZDATA_VERSION}")
    return DONE


def _moment(text: str, cron: "Cron") -> int:
    """`--from` in Unix nanoseconds; without an offset it is a local time of the zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        usage(f"--from: {text!r} is not a time; write 2027-03-14T00:00:00Z, or a local time without the Z")
    if not 1970 <= time.year < 2200:
        usage(f"--from: {text!r}: the year must be 1970 to 2199")
    if time.tzinfo is not None:
        return -(-(time - EPOCH) // timedelta(microseconds=1)) * 1_000
    return cron.resolve((time.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // timedelta(seconds=1) * SECOND)


def _print(fires: "list[Preview]") -> None:
    from cronoq._cli.printing import Table

    table = Table(("LOCAL TIME", "UTC", "NOTE"))
    for fire in fires:
        note = f"{fire.mark} from {fire.named.partition('T')[2]}" if fire.named else fire.mark
        table.add(f"{fire.weekday} {fire.local}", fire.utc, note)
    table.flush()


def _document(fire: "Preview") -> dict[str, str]:
    made = {"local": fire.local, "utc": fire.utc, "unix_ns": str(fire.at)}
    for name in ("mark", "named"):
        if getattr(fire, name):
            made[name] = getattr(fire, name)
    return made
