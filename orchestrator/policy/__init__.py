"""Permission levels: what may be done."""
