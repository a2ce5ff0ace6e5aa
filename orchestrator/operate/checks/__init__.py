"""Checks of this installation. Each examines one thing and says how to fix it."""
