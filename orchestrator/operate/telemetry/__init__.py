"""Telemetry: traces and metrics sent by OTLP. Nothing here is imported unless it is on."""
