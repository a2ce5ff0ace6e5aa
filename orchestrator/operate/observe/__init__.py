"""Measures of the running system: gauges and usage."""
