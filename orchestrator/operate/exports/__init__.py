"""Exports: the record sent to the systems that a company keeps its logs in."""
