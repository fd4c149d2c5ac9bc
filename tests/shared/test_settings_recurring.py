"""Schedules of the configuration file: every key, every rule, and the same rules as for a task on the wire."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.errors import Rejection
from cronoq_sansio.limits import MAX_CONTENT_TYPE, MAX_CRON, MAX_SCHEDULE_NAME, MAX_SCHEDULES, MAX_TIME_ZONE
from cronoq_sansio.settings import LimitSettings, Settings
from cronoq_sansio.settings_check import check_settings
from cronoq_sansio.settings_templates import ENTRY_BYTES, FIXED_BYTES
from cronoq_sansio.spec import MissPolicy, Overlap, Priority, RecurringSpec, RetryOverride, Scheduling, TaskSpec
from cronoq_sansio.wire import pb
from cronoq_sansio.wire.protobuf_spec import decode_spec

MINIMAL = {"name": "s", "cron": "0 9 * * *"}
POOLS = [{"name": "default"}, {"name": "mail"}]
RESOURCES = [
    {"name": "gpu", "kind": "semaphore", "permits": 2},
    {"name": "api", "kind": "token_bucket", "rate": 1, "burst": 5},
]


def cron_check(cron, tz, gap, fold):
    """As the engine's, with a handful of rules."""
    assert gap in ("shift", "skip") and fold in ("first", "last", "both")
    if len(cron.split()) not in (5, 6):
        return f"cron: found {len(cron.split())} fields, allowed are 5 or 6"
    if tz not in ("", "UTC", "Europe/Helsinki"):
        return f"tz: no zone is named {tz!r}"
    return object()


def check(*entries, **tables):
    document = {"pools": POOLS, "resources": RESOURCES, "recurring": list(entries), **tables}
    return check_settings(document, payload_budget=1 << 32, cron_check=cron_check)


def schedule(**keys):
    """The one schedule with these keys."""
    settings = check(MINIMAL | keys)
    assert isinstance(settings, Settings), [str(problem) for problem in settings]
    (found,) = settings.recurring
    return found


def refused(*entries, **tables):
    problems = check(*entries, **tables)
    assert isinstance(problems, tuple)
    return [str(problem) for problem in problems]


# --- what comes out


def test_without_any_there_are_none():
    assert check_settings({}, payload_budget=1).recurring == check().recurring == ()


def test_a_schedule_that_says_nothing_more_has_the_defaults():
    found = schedule()
    size = FIXED_BYTES + len("default") * 2
    assert found == RecurringSpec(
        "s",
        "0 9 * * *",
        "",
        TaskSpec(b"", "", "default", "default", Priority.NORMAL.value, "", None, None, (), size),
        Overlap.SKIP.value,
        "shift",
        "first",
        configured=True,
    )


def test_a_full_schedule_arrives_whole_and_in_nanoseconds():
    found = schedule(
        tz="Europe/Helsinki",
        overlap="queue_on_success",
        dst_gap="skip",
        dst_fold="both",
        pool="mail",
        kind="report",
        priority="low",
        payload="über",
        content_type="text/html",
        key="report",
        tenant="acme",
        timeout_s=1.5,
        deadline_in_s=60,
        duration_hint_s=5,
        tolerance_s=0,
        on_miss="fail",
        tags={"b": "2", "a": "1"},
        labels={"zone": "eu"},
        resources={"gpu": 2, "api": 1},
        retry={"max_attempts": 4, "initial_backoff_s": 0, "jitter": False},
    )
    assert (found.tz, found.overlap, found.gap, found.fold) == ("Europe/Helsinki", 4, "skip", "both")
    task = found.template
    assert (task.payload, task.content_type, task.kind, task.pool) == ("über".encode(), "text/html", "report", "mail")
    assert (task.priority, task.key, task.timeout) == (Priority.LOW, "report", 3 * SECOND // 2)
    assert task.retry == RetryOverride(4, 0, None, None, False)
    assert task.tags == (("a", "1"), ("b", "2"))
    assert task.scheduling == Scheduling(
        deadline_in=60 * SECOND,
        duration_hint=5 * SECOND,
        resources=(("api", 1), ("gpu", 2)),
        labels=(("zone", "eu"),),
        tenant="acme",
        tolerance=0,
        on_miss=MissPolicy.FAIL.value,
    )


@pytest.mark.parametrize(
    ("keys", "payload", "content_type"),
    [
        ({}, b"", ""),
        ({"payload": ""}, b"", "text/plain; charset=utf-8"),
        ({"payload": "a\nß"}, "a\nß".encode(), "text/plain; charset=utf-8"),
        ({"payload_json": '{"b": 1.50,\n "a": null}'}, b'{"b": 1.50,\n "a": null}', "application/json"),
        ({"payload_b64": "AAEC"}, b"\0\1\2", "application/octet-stream"),
        ({"payload_b64": "AAEC", "content_type": ""}, b"\0\1\2", ""),
        ({"payload_json": "3", "content_type": "application/vnd.x+json"}, b"3", "application/vnd.x+json"),
        ({"content_type": "x/y"}, b"", "x/y"),
    ],
)
def test_payloads_have_three_forms(keys, payload, content_type):
    task = schedule(**keys).template
    assert (task.payload, task.content_type) == (payload, content_type)


def test_a_table_of_retries_that_says_nothing_is_none():
    assert schedule(retry={}).template.retry is None
    assert schedule(retry={"jitter": True}).template.retry == RetryOverride(None, None, None, None, True)


def test_what_is_set_to_its_default_asks_for_nothing():
    """A schedule that is compared with its stored form must not differ by how the default is written."""
    assert schedule(tolerance_s=1, on_miss="run_late", tags={}, labels={}, resources={}, tenant="") == schedule()


# --- what is refused

LONG = "x" * 300


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"name": ""}, 'recurring[0].name: found ""; allowed are 1 to 256 bytes'),
        ({"name": LONG}, f"recurring[0].name: 300 bytes, at most {MAX_SCHEDULE_NAME} are allowed"),
        ({"name": "a\0"}, "recurring[0].name: contains a NUL character"),
        ({"cron": ""}, "recurring[0].cron: found 0 fields, allowed are 5 or 6"),
        ({"cron": LONG}, f"recurring[0].cron: 300 bytes, at most {MAX_CRON} are allowed"),
        ({"tz": "Mars/Base"}, "recurring[0].tz: no zone is named 'Mars/Base'"),
        ({"tz": LONG}, f"recurring[0].tz: 300 bytes, at most {MAX_TIME_ZONE} are allowed"),
        (
            {"overlap": "both"},
            'recurring[0].overlap: found "both"; allowed is "skip" or "allow" or "queue" or "queue_on_success"',
        ),
        ({"dst_gap": "x"}, 'recurring[0].dst_gap: found "x"; allowed is "shift" or "skip"'),
        ({"dst_fold": "x"}, 'recurring[0].dst_fold: found "x"; allowed is "first" or "last" or "both"'),
        ({"pool": "mial"}, 'recurring[0].pool: no pool is named "mial"; known are default, mail'),
        ({"kind": LONG}, "recurring[0].kind: 300 bytes, at most 128 are allowed"),
        (
            {"priority": "urgent"},
            'recurring[0].priority: found "urgent"; allowed is "critical" or "high" or "normal" or "low"',
        ),
        ({"payload": 3}, "recurring[0].payload: found 3; allowed is text"),
        (
            {"payload": "a", "payload_b64": ""},
            "recurring[0]: `payload` and `payload_b64` are set; allowed is at most one of them",
        ),
        (
            {"payload_json": "["},
            "recurring[0].payload_json: not valid JSON: Expecting value: line 1 column 2 (char 1)",
        ),
        ({"payload_json": "[NaN]"}, "recurring[0].payload_json: not valid JSON: it has no NaN"),
        ({"payload_json": "[" * 100_000}, "recurring[0].payload_json: nested too deeply"),
        (
            {"payload_b64": "AA"},
            "recurring[0].payload_b64: this is not base64; allowed is the standard alphabet with padding",
        ),
        (
            {"payload_b64": "ä==="},
            "recurring[0].payload_b64: this is not base64; allowed is the standard alphabet with padding",
        ),
        ({"content_type": LONG}, f"recurring[0].content_type: 300 bytes, at most {MAX_CONTENT_TYPE} are allowed"),
        (
            {"key": "x" * 236},
            "recurring[0].key: 236 bytes, at most 235 are allowed (limits.max_key_len less 21 for the time of the"
            " occurrence)",
        ),
        (
            {"key": "a@2026-01-02T03:04:05Z"},
            "recurring[0].key: keys that end in @YYYY-MM-DDTHH:MM:SSZ are reserved for recurring tasks",
        ),
        ({"tenant": LONG}, "recurring[0].tenant: 300 bytes, at most 256 are allowed"),
        ({"timeout_s": -1}, "recurring[0].timeout_s: found -1; allowed is a number of seconds from 0 to 3153600000"),
        ({"on_miss": "retry"}, 'recurring[0].on_miss: found "retry"; allowed is "run_late" or "skip" or "fail"'),
        ({"tags": {"a b": 3}}, 'recurring[0].tags."a b": found 3; allowed is text'),
        ({"tags": {"a": "x" * 1025}}, "recurring[0].tags.a: 1025 bytes, at most 1024 are allowed"),
        (
            {"tags": {"cronoq.recurring": "s"}},
            'recurring[0].tags."cronoq.recurring": names that begin with `cronoq.` are reserved',
        ),
        (
            {"tags": {f"t{n}": "" for n in range(33)}},
            "recurring[0].tags: 33 entries, at most 32 are allowed (limits.max_tags)",
        ),
        ({"labels": {"": "x"}}, 'recurring[0].labels."": the name of a label is not empty'),
        ({"labels": {"a": "\0"}}, "recurring[0].labels.a: contains a NUL character"),
        (
            {"tags": {"\ud800": "x"}},
            'recurring[0].tags."\ud800": the name is not Unicode; allowed are names of at most 1024 bytes without NUL'
            " characters",
        ),
        ({"resources": {"gpx": 1}}, "recurring[0].resources.gpx: no resource has this name; known are gpu, api"),
        ({"resources": {"gpu": 3}}, "recurring[0].resources.gpu: found 3; there are never more than 2 units of it"),
        ({"resources": {"api": 6}}, "recurring[0].resources.api: found 6; there are never more than 5 units of it"),
        (
            {"resources": {"gpu": 0}},
            "recurring[0].resources.gpu: found 0; allowed is an integer from 1 to 1000000000000",
        ),
        (
            {"retry": {"max_attempts": 0}},
            "recurring[0].retry.max_attempts: found 0; allowed is an integer from 1 to 4294967295",
        ),
        ({"deadline_s": 1}, "recurring[0].deadline_s: unknown key; did you mean `deadline_in_s`?"),
        ({"start_in_s": 1}, None),
        ({"deps": []}, None),
    ],
)
def test_problems_read_well(keys, line):
    (found,) = refused(MINIMAL | keys)
    assert found == line or (line is None and ": unknown key; " in found)


def test_name_and_expression_are_required():
    found = refused({})
    assert [line.partition(": ")[0] for line in found] == ["recurring[0].name", "recurring[0].cron"]
    assert all(": missing; required is " in line for line in found)


def test_expression_and_zone_are_both_judged():
    assert refused(MINIMAL | {"cron": "1 2 3", "tz": "Mars"}) == [
        "recurring[0].cron: found 3 fields, allowed are 5 or 6",
        "recurring[0].tz: no zone is named 'Mars'",
    ]
    assert refused(MINIMAL | {"cron": LONG, "tz": "Mars"})[1:] == ["recurring[0].tz: no zone is named 'Mars'"]


def test_names_are_unique_and_every_entry_is_looked_at():
    assert refused(MINIMAL, MINIMAL | {"name": "t", "tz": "x"}, MINIMAL | {"pool": "x", "resources": {"y": 1}}) == [
        "recurring[1].tz: no zone is named 'x'",
        'recurring[2].name: "s" is the name of recurring[0] already; names are unique',
        'recurring[2].pool: no pool is named "x"; known are default, mail',
        "recurring[2].resources.y: no resource has this name; known are gpu, api",
    ]


def test_a_pool_that_was_not_said_must_be_there_too():
    assert refused(MINIMAL, pools=[{"name": f"p{n}"} for n in range(12)]) == [
        'recurring[0].pool: missing, and no pool is named "default"; known are p0, p1, p2, p3, p4, p5, p6, p7, p8, p9'
        " and 2 more"
    ]


def test_without_resources_the_message_says_so():
    assert refused(MINIMAL | {"resources": {"x": 1}}, resources=[]) == [
        "recurring[0].resources.x: no resource has this name; there is no [[resources]]"
    ]


def test_a_resource_that_is_wrong_itself_is_told_once():
    (line,) = refused(MINIMAL | {"resources": {"gpu": 9}}, resources=[{"name": "gpu", "kind": "semaphore"}])
    assert line.startswith("resources[0].permits: missing")


def test_the_limits_of_the_file_count():
    limits = {"max_key_len": 30, "max_kind_len": 3, "max_tags": 1, "max_tag_len": 4, "max_resources": 1}
    keys = {"key": "x" * 10, "kind": "four", "tags": {"a": "", "b": ""}, "labels": {"label": "x"}}
    found = refused(MINIMAL | keys | {"resources": {"gpu": 1, "api": 1}}, limits=limits)
    assert [line.partition(": ")[0].removeprefix("recurring[0].") for line in found] == [
        *("labels.label", "kind", "key", "tags", "resources")
    ]
    assert not isinstance(check(MINIMAL | {"key": "x" * 9}, limits=limits), tuple)


def test_a_task_must_fit_a_message():
    limits = {"max_message_bytes": 4096}
    room = 4096 - 1024 - FIXED_BYTES - 2 * len("default") - len("text/plain; charset=utf-8")
    assert isinstance(check(MINIMAL | {"payload": "x" * room}, limits=limits), Settings)
    assert refused(MINIMAL | {"payload": "x" * (room + 1)}, limits=limits) == [
        "recurring[0]: its task has up to 3073 bytes as encoded, at most 3072 are allowed"
        " (limits.max_message_bytes less 1024)"
    ]


def test_there_are_not_more_than_the_engine_takes():
    entries = [{"name": str(number), "cron": "0 9 * * *"} for number in range(MAX_SCHEDULES + 1)]
    assert refused(*entries) == [f"recurring: found {MAX_SCHEDULES + 1} schedules; allowed are at most {MAX_SCHEDULES}"]


def test_the_tasks_of_all_schedules_must_fit_the_budget():
    limits = {"max_message_bytes": 4096, "max_payload_bytes": 4096}
    size = FIXED_BYTES + 2 * len("default")
    most, rest = divmod(4096, size)
    entries = [MINIMAL | {"name": str(number)} for number in range(most + 1)]
    assert rest and isinstance(check(*entries[1:], limits=limits), Settings)
    assert refused(*entries, limits=limits) == [
        f"recurring: the tasks of all schedules have up to {size * (most + 1)} bytes as encoded;"
        " at most limits.max_payload_bytes, here 4096, are allowed"
    ]


def test_what_stands_there_in_another_form_is_told():
    assert refused(recurring={"name": "s"}) == [
        "recurring: found a table; allowed is an array of tables, each written [[recurring]]"
    ]


def test_a_payload_is_never_shown():
    secret = "s3cret-s3cret"
    lines = refused(MINIMAL | {"payload_json": secret, "payload_b64": f"{secret}!", "key": "\0"})
    assert len(lines) == 4 and not any(secret in line for line in lines)


def test_without_a_judge_expressions_are_not_looked_at():
    document = {"recurring": [{"name": "s", "cron": "whatever", "tz": "x"}]}
    assert isinstance(check_settings(document, payload_budget=1 << 32), Settings)


# --- the wire has the same rules

SMALL = LimitSettings(
    max_message_bytes=4_096, max_key_len=24, max_kind_len=3, max_tags=2, max_tag_len=3, max_resources=1
)
TEXT = st.text(st.sampled_from("aß\0"), max_size=4)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=3)
SECONDS = st.sampled_from([0, 1, 0.5, 3_153_600_000, 3_153_600_001, -1])
KEYS = st.fixed_dictionaries(
    {},
    optional={
        "kind": TEXT,
        "payload": TEXT | st.just("x" * 3_500),
        "key": TEXT,
        "tenant": TEXT | st.just("ß" * 13),
        "timeout_s": SECONDS,
        "deadline_in_s": SECONDS,
        "duration_hint_s": SECONDS,
        "tags": PAIRS | st.just({"cronoq.": ""}),
        "labels": PAIRS,
        "resources": st.dictionaries(st.sampled_from(["gpu", "api"]), st.integers(0, 2), max_size=2),
        "content_type": TEXT | st.just("ß" * 65),
        "priority": st.sampled_from([word.name.lower() for word in Priority]),
    },
)


def message(keys):
    """The same task as a caller would send it. The key is one of an occurrence's length."""
    plain = {name: found for name, found in keys.items() if name not in ("payload", "priority", "key")}
    content_type = {"content_type": "text/plain; charset=utf-8"} if "payload" in keys else {}
    task = pb.TaskSpec(**(content_type | plain))
    task.payload = keys.get("payload", "").encode()
    task.priority = Priority[keys.get("priority", "normal").upper()] + 1
    task.key = keys["key"] + "-" * 21 if keys.get("key") else ""
    return task


@given(KEYS)
def test_the_file_takes_what_the_wire_takes(keys):
    limits = {name: getattr(SMALL, name) for name in ("max_message_bytes", "max_key_len", "max_kind_len", "max_tags")}
    limits |= {name: getattr(SMALL, name) for name in ("max_tag_len", "max_resources")}
    settings = check(MINIMAL | keys, limits=limits)
    task = message(keys)
    decoded = decode_spec(task, task.ByteSize(), SMALL)
    assert isinstance(settings, Settings) == isinstance(decoded, TaskSpec), decoded
    if isinstance(decoded, TaskSpec):
        template = settings.recurring[0].template
        assert task.ByteSize() <= template.size + 21 <= task.ByteSize() + FIXED_BYTES + 21 + 4 * ENTRY_BYTES
        assert replace(template, size=0, key="") == replace(decoded, size=0, key="")


def test_the_size_is_a_bound_with_everything_set():
    """All numbers at their widest, and more pairs than heads of one byte can count."""
    keys = {
        "payload_b64": base64.b64encode(b"x" * 70_000).decode(),
        "timeout_s": 1.1,
        "deadline_in_s": 1.1,
        "duration_hint_s": 1.1,
        "tolerance_s": 1.1,
        "on_miss": "fail",
        "tags": {f"tag{n}": "y" * 1_000 for n in range(32)},
        "labels": {f"label{n}": "y" * 1_000 for n in range(32)},
        "resources": {"gpu": 2, "api": 5},
        "tenant": "t",
        "key": "k",
        "retry": {"max_attempts": 1 << 31, "initial_backoff_s": 1.1, "multiplier": 1.1, "max_backoff_s": 1.1},
    }
    found = schedule(**keys).template
    sent = pb.TaskSpec(
        payload=found.payload,
        content_type=found.content_type,
        kind=found.kind,
        pool=found.pool,
        priority=4,
        key=found.key,
        deadline_in_s=1.1,
        tolerance_s=1.1,
        on_miss=3,
        duration_hint_s=1.1,
        timeout_s=1.1,
        retry=pb.RetryPolicy(**keys["retry"]),
        resources=keys["resources"],
        tags=keys["tags"],
        labels=keys["labels"],
        tenant="t",
    )
    assert sent.ByteSize() <= found.size <= sent.ByteSize() + FIXED_BYTES + ENTRY_BYTES * 66
    assert not isinstance(decode_spec(pb.TaskSpec(timeout_s=MAX_CLIENT_DURATION / SECOND), 20, SMALL), Rejection)
