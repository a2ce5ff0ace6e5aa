"""Kills the control plane, the engine and agents, and checks that nothing is lost or left."""
