"""A workload against a configuration, in virtual time, reported as tables."""
