"""The operator's changes while the control plane runs."""
