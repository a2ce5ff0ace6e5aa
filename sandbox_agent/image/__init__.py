"""Runs in containers of an image: what the agent needs in others, and what an image has."""
