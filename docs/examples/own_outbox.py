"""A runtime that has an outbox of its own, and what the simulator says of it."""

from cronoq_sansio import Service, Step, StepsDurable
from cronoq_sansio.sim import run


class OwnOutbox:
    """Keeps in a list what must be durable before it is said."""

    def __init__(self, service, volatile):
        self.service = service
        self.volatile = volatile
        self.held = []
        self.durable = self.number = 0

    def handle(self, events, now):
        told = [event for event in events if not isinstance(event, StepsDurable)]
        step = self.service.handle(told, now) if told else Step(self.number)
        self.number = step.number
        for event in events:
            if isinstance(event, StepsDurable):
                self.durable = event.through
        if self.volatile:
            self.durable = self.number
        self.held += step.once_durable
        step.once_durable = []
        step.at_once = self.service.released(step.at_once + self.ready(), now)
        return step

    def ready(self):
        ready = [action for action in self.held if action.after <= self.durable]
        self.held = [action for action in self.held if action.after > self.durable]
        return sorted(ready, key=lambda action: action.after)

    def next_timeout(self):
        return self.service.next_timeout()


class HastyOutbox(OwnOutbox):
    """Says everything at once."""

    def ready(self):
        ready, self.held = self.held, []
        return ready


def machine_with(outbox):
    """What the simulator calls for each term of a server."""

    def machine(engine, settings, now, *, volatile):
        service = Service(engine, settings, now, volatile=volatile)
        return outbox(service, volatile), service

    return machine


if __name__ == "__main__":
    for outbox in (OwnOutbox, HastyOutbox):
        report = run(seeds=8, steps=300, world="server", machine=machine_with(outbox))
        for failure in report.failures:
            print(f"{outbox.__name__}: {failure.kind.name} in seed {failure.seed}: {failure.what}")
        if report.ok:
            print(f"{outbox.__name__}: {report.seeds} seeds, nothing was broken")
