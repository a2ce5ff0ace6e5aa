"""Runs: turns whose program is a model that calls tools."""
