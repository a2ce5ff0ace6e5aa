"""Templates prepared: built as snapshots of workspaces, cached, and given to new sessions."""
