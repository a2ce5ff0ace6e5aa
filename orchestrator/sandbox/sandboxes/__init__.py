"""Sandboxes: container, directory and agent link, created and released together."""
