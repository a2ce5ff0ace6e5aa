"""Terminals: interactive tools in sandboxes, used through one governed line at a time."""
