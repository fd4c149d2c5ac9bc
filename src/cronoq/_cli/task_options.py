"""The description of a task: the options that `submit` and `recurring add` take for it."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from cronoq._cli import arguments
from cronoq._cli.arguments import OnMiss, Priority
from cronoq._cli.failures import usage


def _option(help: str) -> Parameter:
    return Parameter(help=help, negative="", show_default=False)


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """What every task may have; what is not given is the server's to choose."""

    file: Annotated[str | None, _option("A file whose bytes are the payload; `-` is stdin.")] = None
    data: Annotated[str | None, _option("The payload as JSON, which is checked.")] = None
    content_type: Annotated[
        str | None, _option("Content type of the payload, instead of the one of the form it is given in.")
    ] = None
    pool: Annotated[str | None, _option("The pool; without it the one named `default`.")] = None
    kind: Annotated[str | None, _option("What kind of task it is: workers choose their handler by it.")] = None
    priority: Annotated[Priority | None, _option("`critical`, `high`, `normal` (without it) or `low`.")] = None
    tenant: Annotated[str | None, _option("Whose share of the pool it takes.")] = None
    label: Annotated[list[str] | None, _option("NAME=VALUE that the worker must have; may be repeated.")] = None
    tag: Annotated[list[str] | None, _option("NAME=VALUE that travels with the task; may be repeated.")] = None
    resource: Annotated[
        list[str] | None, _option("NAME=UNITS of a resource that an attempt takes, from 1; may be repeated.")
    ] = None
    tolerance: Annotated[float | None, _option("Seconds by which it may start too late; 1 without it.")] = None
    on_miss: Annotated[
        OnMiss | None,
        _option("When it would be later: `run_late` (without it) runs it all the same, `skip` and `fail` end it."),
    ] = None
    duration_hint: Annotated[
        float | None, _option("Seconds that an attempt will probably take; says how early it must start.")
    ] = None
    timeout_s: Annotated[float | None, _option("Seconds that one attempt may take.")] = None

    def described(self, text: str | None) -> tuple[Any, dict[str, Any]]:
        """Payload and options as `cronoq.client.task` takes them; `text` is the payload of the command line."""
        content, derived = arguments.payload(text, self.file, self.data)
        options: dict[str, Any] = {
            "content_type": self.content_type or derived,
            "pool": self.pool,
            "kind": self.kind,
            "priority": self.priority,
            "tenant": self.tenant,
            "labels": arguments.named_values("--label", self.label),
            "tags": arguments.named_values("--tag", self.tag),
            "resources": arguments.amounts("--resource", self.resource),
            "tolerance": arguments.span("--tolerance", self.tolerance),
            "on_miss": self.on_miss,
            "duration_hint": arguments.span("--duration-hint", self.duration_hint),
            "timeout": arguments.span("--timeout-s", self.timeout_s),
            **self._own_options(),
        }
        from cronoq.client import task

        try:  # what cannot be sent at all is an error of the command line
            task(content, **options)
        except (TypeError, ValueError) as error:
            usage(str(error))
        return content, options

    def _own_options(self) -> dict[str, Any]:
        return {}


@Parameter(name="*")
@dataclass(frozen=True)
class TaskOptions(CommonOptions):
    """A task that is handed in now."""

    key: Annotated[
        str | None,
        _option("Name of the task, unique while it is remembered: submitting the same key again finds the first task."),
    ] = None
    start_in: Annotated[
        float | None, _option("Start in so many seconds: not before, and a slot is kept free for it.")
    ] = None
    start_at: Annotated[
        str | None,
        _option("The same as a time: 2027-03-14T07:00:00Z, with any offset instead of Z, or Unix seconds."),
    ] = None
    deadline_in: Annotated[
        float | None, _option("Seconds from now in which it should be done: makes it more urgent, aborts nothing.")
    ] = None
    after: Annotated[
        list[str] | None, _option("Run only after this task has succeeded: an id, or a key; may be repeated.")
    ] = None
    after_complete: Annotated[
        list[str] | None, _option("Run only after this task has ended in whatever way; may be repeated.")
    ] = None
    after_failure: Annotated[
        list[str] | None, _option("Run only if this task failed or used up its attempts; may be repeated.")
    ] = None
    after_keys: Annotated[bool, _option("The tasks that --after… name are keys, also where they look like ids.")] = (
        False
    )

    def _own_options(self) -> dict[str, Any]:
        if self.start_in is not None and self.start_at is not None:
            usage("--start-in and --start-at: only one of them can be the start")
        if self.tolerance is not None and self.start_in is None and self.start_at is None:
            usage("--tolerance is of use only with --start-in or --start-at")
        return {
            "key": self.key,
            "start_in": arguments.span("--start-in", self.start_in),
            "start_at": None if self.start_at is None else arguments.time_at("--start-at", self.start_at),
            "deadline_in": arguments.span("--deadline-in", self.deadline_in),
            "deps": self._dependencies(),
        }

    def _dependencies(self) -> list[tuple[int | str, str]]:
        named = (("success", self.after), ("complete", self.after_complete), ("failure", self.after_failure))
        if self.after_keys and not any(references for _, references in named):
            usage("--after-keys is of use only with --after, --after-complete or --after-failure")
        found: list[tuple[int | str, str]] = []
        for condition, references in named:
            option = "--after" if condition == "success" else f"--after-{condition}"
            found += [
                (arguments.any_reference(option, text, keys=self.after_keys), condition) for text in references or ()
            ]
        return found


@Parameter(name="*")
@dataclass(frozen=True)
class TemplateOptions(CommonOptions):
    """The tasks of a schedule."""

    key: Annotated[str | None, _option("What the keys of its tasks begin with; `@` and the start follow, in UTC.")] = (
        None
    )
    deadline_in: Annotated[
        float | None, _option("Seconds from each start in which the task should be done; aborts nothing.")
    ] = None

    def _own_options(self) -> dict[str, Any]:
        return {"key": self.key, "deadline_in": arguments.span("--deadline-in", self.deadline_in)}
