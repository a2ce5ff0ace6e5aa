"""Shells that keep their state: created by name, and used for one command after the other."""
