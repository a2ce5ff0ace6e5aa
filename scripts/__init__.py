"""What `make` runs: the virtual environment, the engine, the control plane in the background."""
