"""Simulations of a cluster that no machine can hold, with the real decisions."""
