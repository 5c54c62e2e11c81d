"""Assign units to workers: static shards, leases, and units published by the preceding stage."""
