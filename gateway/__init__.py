"""The gateway of a cluster: passes requests to the nodes of their sessions, and places new ones."""
