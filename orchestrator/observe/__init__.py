"""Metrics, gauges, and the context of log lines."""
