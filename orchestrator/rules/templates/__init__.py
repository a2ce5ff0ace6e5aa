"""Templates: prepared workspaces, each described in one file, from which sessions are created."""
