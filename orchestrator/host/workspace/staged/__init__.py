"""The process that reads and commits what is staged, as the workspace's user; stdlib only."""
