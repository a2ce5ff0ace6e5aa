"""The host: its confinement features, its processes, and killing them."""
