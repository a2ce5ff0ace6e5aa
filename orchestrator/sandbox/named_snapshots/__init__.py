"""Named snapshots: copies of workspaces that a key keeps, and from which sessions begin."""
