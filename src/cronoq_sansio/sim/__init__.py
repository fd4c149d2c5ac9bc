"""Deterministic simulation of the whole server: faults of every kind, in virtual time, from a seed."""
