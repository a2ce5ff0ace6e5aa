"""Approvals: input that waits for a person's decision, and notifications about it."""
