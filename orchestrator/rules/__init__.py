"""Decisions by levels, policies, keys, tools and the way out, and the files of these rules."""
