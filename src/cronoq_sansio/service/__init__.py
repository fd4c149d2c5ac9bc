"""The protocol: calls, waits, worker sessions, access. Knows no byte, socket or store. Owns one Engine."""
