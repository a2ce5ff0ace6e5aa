"""Approvals: what waits for a person, and who is told of it."""
