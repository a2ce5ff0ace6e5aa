"""The machine: container engine, links to agents, processes, workspaces on disk."""
