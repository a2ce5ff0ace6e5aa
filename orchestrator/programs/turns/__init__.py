"""Turns: programs of operations that the host runs for an agent, under a policy and a budget."""
