"""What the state hash takes of each class of the engine (`state_hash.py`), and what it leaves out, with the reason.

`PLAIN` fields are taken as they are, `TAKEN` ones in words of their own. A test compares the three tables with the
classes: a field that is in none of them is one that somebody has added and forgotten here.
"""

from cronoq_sansio.engine.autoscale import Autoscale, Scaler
from cronoq_sansio.engine.dependencies import Blocked, Dependencies, Parent
from cronoq_sansio.engine.dispatch import Pool
from cronoq_sansio.engine.durations import Durations, Samples
from cronoq_sansio.engine.engine import Engine
from cronoq_sansio.engine.fair_share import Shares
from cronoq_sansio.engine.figures import Figures
from cronoq_sansio.engine.labels import Demand, Group, Groups
from cronoq_sansio.engine.leases import Leases
from cronoq_sansio.engine.recurring import Recurring
from cronoq_sansio.engine.resources import Resources
from cronoq_sansio.engine.schedules import Schedule
from cronoq_sansio.engine.snapshot import Totals
from cronoq_sansio.engine.stocks import Bucket, Semaphore
from cronoq_sansio.engine.table import TaskTable
from cronoq_sansio.engine.task import Lease, Plan, Retained, Task
from cronoq_sansio.engine.waiting_room import WaitingRoom

PLAIN: dict[type, tuple[str, ...]] = {
    Task: ("id", "status", "attempt", "max_attempts", "arrival", "created", "first_started", "last_started", "message"),
    Plan: (
        *("deadline", "needs", "estimate", "latest_start", "tag", "called", "place", "fixed", "start", "late"),
        *("on_miss", "booking", "wants", "schedule"),
    ),
    Lease: ("id", "attempt", "group", "live", "held", "started", "beat", "previous_start"),
    Leases: ("next_id", "excused", "parked"),
    Retained: ("task_id", "pool", "key", "status", "expires"),
    TaskTable: ("next_id", "payload_bytes", "pending"),
    Group: ("labels", "capacity", "filled"),
    Demand: ("labels", "tasks", "called"),
    Pool: ("name", "pending", "pending_by_class", "apart_by_class", "called", "schedules", "queued"),
    Figures: ("overtakes", "succeeded", "failed", "cancelled", "running", "_busy", "offered", "worked", "hits"),
    Scaler: ("current", "rate", "_arrivals", "_down_from"),
    Autoscale: ("due", "_tick"),
    Schedule: ("added", "through", "local", "last_task", "unarmed"),
    Recurring: ("armed", "template_bytes", "unarmed"),
    Semaphore: ("name", "capacity", "promised", "used"),
    Bucket: ("name", "capacity", "promised", "token", "_gain"),
    Blocked: ("unmet",),
    Parent: ("id", "key", "status"),
    Dependencies: ("unsettled", "held"),
    Resources: ("_places",),
    Totals: tuple(Totals.__slots__),
    WaitingRoom: ("waiting",),
    Engine: ("wall_offset", "watched", "cut", "_held", "_more"),
}

TAKEN: dict[type, tuple[str, ...]] = {
    Task: ("spec", "plan", "retry", "lease", "timer", "stored"),
    Plan: ("demand", "claim", "hold", "ahead"),
    Lease: ("task",),
    Leases: ("live",),
    Retained: ("stored",),
    TaskTable: ("live", "keys", "finished"),
    Group: ("holders",),
    Groups: ("by_labels", "demands"),
    Pool: ("groups", "figures", "durations", "shares", "arrivals"),
    Figures: ("_notes", "fixed_starts", "waits"),
    Scaler: ("_highest",),
    Autoscale: ("_pools",),
    Schedule: ("spec", "next", "entry", "timer"),
    Recurring: ("_schedules", "_damaged", "dropped", "notes"),
    Resources: ("_stocks",),
    Bucket: ("level", "_updated"),
    WaitingRoom: ("_lines",),
    Durations: ("_pool", "_kinds"),
    Samples: ("fresh", "_window"),
    Shares: ("virtual", "_finishes"),
    Blocked: ("task", "parents", "timer"),
    Parent: ("children", "stored"),
    Dependencies: ("any", "_appeared", "_ended", "_timers"),
    Engine: (
        *("tasks", "pools", "dependencies", "recurring", "resources", "waiting_room", "leases", "retries", "totals"),
        *("random", "awake", "autoscale", "now", "number", "written", "_look_due", "_note_due"),
    ),
}

_FOLLOWS = "follows from the tasks and their plans"
_LOOKED = "changes when somebody looks, and decides nothing"
_SETTINGS = "of the settings"

LEFT_OUT: dict[type, dict[str, str]] = {
    Task: {"pool": "its name is in the specification", "finished": "a live task has not ended"},
    Plan: {"lane": _FOLLOWS},
    Lease: {"timed": _LOOKED},
    Leases: {"heap": _FOLLOWS},
    TaskTable: {"_retained": "those that are finished", "_retention": _SETTINGS, "_retention_max": _SETTINGS},
    Group: {"demands": _FOLLOWS, "counted": _FOLLOWS, "number": "the order of the groups says it"},
    Groups: {
        **dict.fromkeys(("capacity", "filled", "held", "overbusy", "plain", "varied"), "a sum over the groups"),
        **dict.fromkeys(("_labelled", "_demanding"), "an index"),
        "_number": "the order of groups and demands says it",
    },
    Demand: {
        **dict.fromkeys(("closed", "groups", "only", "_free", "_heap"), _FOLLOWS),
        "number": "the order of the demands says it",
    },
    Pool: {
        **dict.fromkeys(("_fixed", "_lines", "_plain", "_special", "ids", "in_play", "lanes", "live"), _FOLLOWS),
        **dict.fromkeys(("own_slots", "starts", "victims"), _FOLLOWS),
        **dict.fromkeys(("index", "settings"), _SETTINGS),
    },
    Scaler: {"_settings": _SETTINGS, "_target": _SETTINGS},
    Schedule: {"cron": "follows from the specification", "pool": "follows from the specification"},
    Recurring: {"live": _FOLLOWS, "_ahead": _FOLLOWS, "_waiting": _FOLLOWS},
    Resources: {"_parking": _FOLLOWS, "_called": _FOLLOWS, "any": _FOLLOWS},
    Semaphore: {"rank": _SETTINGS, **dict.fromkeys(("shut", "noted", "timer", "due_at"), _LOOKED)},
    Bucket: {"rank": _SETTINGS, **dict.fromkeys(("shut", "noted", "timer", "due_at"), _LOOKED)},
    Dependencies: {"parents": "follows from who is blocked"},
    WaitingRoom: {"_places": "follows from the lines", "_arrivals": "the order in the lines says it"},
    Durations: {"_default": _SETTINGS, "_fresh": "is that of `_pool`", "_alarm": _LOOKED, "alarmed": _LOOKED},
    Samples: {"_sorted": "follows from the window"},
    Shares: {"_steps": _SETTINGS, "_full": "when garbage is looked for"},
    Engine: {
        **dict.fromkeys(("settings", "limits"), _SETTINGS),
        "starts": _FOLLOWS,
        "step": "was handed out",
        "_recovery": "over once it serves",
    },
}
