"""Sessions as one archive: taken on one control plane, restored on another."""
