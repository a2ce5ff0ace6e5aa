"""What operators do: checks, measures, backups, snapshots, hooks, edits of keys."""
