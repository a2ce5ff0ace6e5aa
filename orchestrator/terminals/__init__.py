"""Terminals: interactive tools in sandboxes, talked to one governed line at a time."""
