"""What is on record, outside of a control plane: its formats, and whether it is whole."""
