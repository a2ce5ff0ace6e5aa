"""Workspaces on the host: slots, quotas, mounts, sandbox directories, purge."""
