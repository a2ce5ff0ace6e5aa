"""Workspaces on the host: slots, quotas, mounts, staging, purge."""
