"""The worker's side of a worker stream without I/O: what it says, when, and what it does about what it is told."""
