"""Runs in a container: commands as the agent would start them, and what the kernel did for them."""
