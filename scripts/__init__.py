"""Programs that `make` runs: for the virtual environment, the engine and the control plane."""
