"""What shows the engine right: a naive model of the rules, and a world that drives both with the same events."""
