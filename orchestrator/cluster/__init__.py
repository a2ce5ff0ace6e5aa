"""What the machines of a cluster agree on: places of sessions, keys, quotas, capacity."""
