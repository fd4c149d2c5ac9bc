"""Decides: scheduling, leases, retries, time. Knows no client, no worker stream and no byte."""
