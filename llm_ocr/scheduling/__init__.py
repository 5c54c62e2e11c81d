"""Which worker processes which unit: static shards, leases, and units of the preceding stage."""
