"""The gateway of a cluster: one address for the sessions of all nodes."""
