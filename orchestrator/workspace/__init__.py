"""Workspaces on the host: slots, mounts, sandbox directories, purge."""
