"""The HTTP face of the control plane."""
