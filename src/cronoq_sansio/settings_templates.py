"""The schedules of a configuration: each entry of `[[recurring]]` with the template of its tasks.

A template is held to the rules and limits of a task on the wire (`checks`), and to what only the file knows: its pools,
its resources and their capacity. Whether a cron expression and its zone mean something is asked of whoever can read
them, because the engine stands further out than this module.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cronoq_sansio.checks import check_key_prefix, check_text
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import MAX_CONTENT_TYPE, MAX_CRON, MAX_SCHEDULE_NAME, MAX_TIME_ZONE, MESSAGE_HEADROOM
from cronoq_sansio.settings import LimitSettings, ScheduleSettings
from cronoq_sansio.settings_text import show, shown_name
from cronoq_sansio.spec import (
    DEFAULT_KIND,
    DEFAULT_POOL,
    RESERVED_TAGS,
    MissPolicy,
    Overlap,
    Priority,
    RecurringSpec,
    Scheduling,
    TaskSpec,
)
from cronoq_sansio.values import value

#: Asked with cron, tz, gap and fold. A text that begins with `cron: ` or `tz: ` says why they cannot be used.
CronCheck = Callable[[str, str, str, str], object]

MAX_NAMED = 10  #: names that a message lists; a thousand pools would hide what is wrong
FIXED_BYTES = 192  #: as encoded: all numbers, and the heads, of at most 7 bytes, of the fields that stand once
ENTRY_BYTES = 20  #: as encoded: the heads of an entry of a map and of what stands in it

_PAYLOADS = {
    "payload": "text/plain; charset=utf-8",
    "payload_json": "application/json",
    "payload_b64": "application/octet-stream",
}
_ALWAYS = "* * * * *"


@value
class Known:
    """What a template may name."""

    limits: LimitSettings
    pools: Sequence[str]
    resources: Mapping[str, int]
    """Capacity by name; 0 = what is said of the resource is wrong, so nobody knows."""


class TemplateReader:
    """Reads one entry of `[[recurring]]` after the other."""

    def __init__(self, known: Known, cron_check: CronCheck | None, wrong: Callable[[str, str], None]) -> None:
        """`wrong` takes the path and the sentence of each problem."""
        self._known = known
        self._cron_check = cron_check
        self._wrong = wrong

    def read(self, path: str, values: Mapping[str, Any]) -> RecurringSpec:
        """The schedule that stands at `path`; of no use once a problem was told.

        `values` has those keys, by field, that have the right form.
        """
        found = ScheduleSettings(**{"name": "", "cron": "", **values})
        self._check_texts(path, found)
        if values.get("name") == "":
            self._wrong(f"{path}.name", f'found ""; allowed are 1 to {MAX_SCHEDULE_NAME} bytes')
        if "cron" in values:
            self._check_cron(path, found)
        self._check_pool(f"{path}.pool", found.pool)
        self._check_pairs(path, found)
        self._check_resources(f"{path}.resources", found.resources)
        template = _template(found, *self._payload(path, found))
        largest = self._known.limits.max_message_bytes - MESSAGE_HEADROOM
        if template.size > largest:
            what = f"its task has up to {template.size} bytes as encoded, at most {largest} are allowed"
            self._wrong(path, f"{what} (limits.max_message_bytes less {MESSAGE_HEADROOM})")
        overlap = Overlap[found.overlap.upper()].value
        return RecurringSpec(found.name, found.cron, found.tz, template, overlap, found.gap, found.fold, True)

    def _tell(self, path: str, fault: Rejection | None) -> None:
        """What a check of the field at `path` found, if it found something."""
        if fault is not None:
            self._wrong(path, fault.message.removeprefix(f"{path}: "))

    def _check_texts(self, path: str, found: ScheduleSettings) -> None:
        limits = self._known.limits
        for name, text, longest in (
            ("name", found.name, MAX_SCHEDULE_NAME),
            ("cron", found.cron, MAX_CRON),
            ("tz", found.tz, MAX_TIME_ZONE),
            ("kind", found.kind, limits.max_kind_len),
            ("content_type", found.content_type or "", MAX_CONTENT_TYPE),
            ("tenant", found.tenant, limits.max_key_len),
        ):
            self._tell(f"{path}.{name}", check_text(f"{path}.{name}", text, longest))
        self._tell(f"{path}.key", check_key_prefix(f"{path}.key", found.key, limits.max_key_len))

    def _check_cron(self, path: str, found: ScheduleSettings) -> None:
        """Expression and zone are judged by themselves, so that both are told; not again when they are too long."""
        if self._cron_check is None:
            return
        cron = _ALWAYS if check_text("", found.cron, MAX_CRON) else found.cron
        tz = "" if check_text("", found.tz, MAX_TIME_ZONE) else found.tz
        fault = self._cron_check(cron, tz, found.gap, found.fold)
        if isinstance(fault, str):
            self._tell_cron(path, fault)
            blamed = fault.partition(": ")[0]
            other = (_ALWAYS, tz) if blamed == "cron" else (cron, "")
            fault = self._cron_check(*other, found.gap, found.fold)
            if isinstance(fault, str):
                self._tell_cron(path, fault)

    def _tell_cron(self, path: str, fault: str) -> None:
        name, _, sentence = fault.partition(": ")
        self._wrong(f"{path}.{name}", sentence)

    def _check_pool(self, path: str, pool: str) -> None:
        pools = self._known.pools
        if (pool or DEFAULT_POOL) not in pools:
            what = f"no pool is named {show(pool or DEFAULT_POOL)}"
            self._wrong(path, f"{what if pool else f'missing, and {what}'}; known are {_listed(pools)}")

    def _check_pairs(self, path: str, found: ScheduleSettings) -> None:
        """Tags and labels: how many, reserved and empty names, long values. The walk has seen to long names."""
        limits = self._known.limits
        for kind, pairs in (("tags", found.tags), ("labels", found.labels)):
            if len(pairs) > limits.max_tags:
                what = f"{len(pairs)} entries, at most {limits.max_tags} are allowed (limits.max_tags)"
                self._wrong(f"{path}.{kind}", what)
            for name, text in pairs:
                where = f"{path}.{kind}.{shown_name(name)}"
                if kind == "tags" and name.startswith(RESERVED_TAGS):
                    self._wrong(where, f"names that begin with `{RESERVED_TAGS}` are reserved")
                if kind == "labels" and not name:
                    self._wrong(where, "the name of a label is not empty")
                self._tell(where, check_text(where, text, limits.max_tag_len))

    def _check_resources(self, path: str, asked: tuple[tuple[str, int], ...]) -> None:
        resources, most = self._known.resources, self._known.limits.max_resources
        if len(asked) > most:
            self._wrong(path, f"{len(asked)} entries, at most {most} are allowed (limits.max_resources)")
        for name, units in asked:
            where = f"{path}.{shown_name(name)}"
            if name not in resources:
                known = f"known are {_listed(tuple(resources))}" if resources else "there is no [[resources]]"
                self._wrong(where, f"no resource has this name; {known}")
            elif resources[name] and units > resources[name]:
                self._wrong(where, f"found {units}; there are never more than {resources[name]} units of it")

    def _payload(self, path: str, found: ScheduleSettings) -> tuple[bytes, str]:
        """The payload and its content type."""
        forms = {name: text for name in _PAYLOADS if (text := getattr(found, name)) is not None}
        if len(forms) > 1:
            self._wrong(path, f"{' and '.join(f'`{name}`' for name in forms)} are set; allowed is at most one of them")
        payload = b""
        for name, text in forms.items():
            try:
                payload = _bytes(name, text)
            except RecursionError:
                self._wrong(f"{path}.{name}", "nested too deeply")
            except ValueError as error:
                self._wrong(f"{path}.{name}", str(error))
        content_type = found.content_type
        if content_type is None:
            content_type = _PAYLOADS[next(iter(forms))] if forms else ""
        return payload, content_type


def _bytes(form: str, text: str) -> bytes:
    """The payload as it will be sent. `ValueError` without a word of it: it could be a secret."""
    if form == "payload_b64":
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise ValueError("this is not base64; allowed is the standard alphabet with padding") from None
    if form == "payload_json":
        try:
            json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            raise ValueError(f"not valid JSON: {error}") from None
    return text.encode()


def _no_constant(word: str) -> object:
    """Python's reader knows NaN and infinities, JSON does not (RFC 8259 section 6)."""
    raise ValueError(f"it has no {word}")


def _template(found: ScheduleSettings, payload: bytes, content_type: str) -> TaskSpec:
    asked = Scheduling(
        None,
        found.deadline_in,
        found.duration_hint,
        (),
        found.resources,
        found.labels,
        found.tenant,
        None,
        None,
        found.tolerance,
        MissPolicy[found.on_miss.upper()].value,
    )
    return TaskSpec(
        payload,
        content_type,
        found.kind or DEFAULT_KIND,
        found.pool or DEFAULT_POOL,
        Priority[found.priority.upper()].value,
        found.key,
        found.timeout,
        found.retry,
        found.tags,
        _encoded(found, payload, content_type),
        None if asked == Scheduling() else asked,
    )


def _encoded(found: ScheduleSettings, payload: bytes, content_type: str) -> int:
    """An upper bound of the template's size on the wire, about 200 bytes above it at most."""
    texts = [content_type, found.kind or DEFAULT_KIND, found.pool or DEFAULT_POOL, found.key, found.tenant]
    pairs = found.tags + found.labels
    texts += [text for pair in pairs for text in pair] + [name for name, _ in found.resources]
    entries = len(pairs) + len(found.resources)
    return FIXED_BYTES + ENTRY_BYTES * entries + len(payload) + sum(len(text.encode()) for text in texts)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
