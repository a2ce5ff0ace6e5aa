"""Traces: the ids of spans, and what each part of a request adds to its span."""
