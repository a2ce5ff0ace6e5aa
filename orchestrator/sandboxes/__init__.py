"""Sandboxes: container, directory and agent link, made and released together."""
