"""Counts over all sessions, which follow every change of one."""
