"""What the benchmarks share: the machine, server processes, loads, rounds and what is said about them."""
