"""Checks of a node or a gateway of a cluster: its certificate, its database, the ways to nodes."""
