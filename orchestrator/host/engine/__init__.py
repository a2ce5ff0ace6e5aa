"""Container engines behind one interface."""
