"""Proposals: what a session staged, shown, committed to its workspace, or discarded."""
