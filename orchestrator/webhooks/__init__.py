"""Hooks: what happens in sessions, sent by POST to hosts, from the record and in its order."""
