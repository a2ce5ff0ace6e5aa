"""Hooks: signed messages to hosts about what happens in sessions."""
