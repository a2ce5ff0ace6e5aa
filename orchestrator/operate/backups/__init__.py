"""Backups of the state directory, taken while the control plane runs, and their restoration."""
