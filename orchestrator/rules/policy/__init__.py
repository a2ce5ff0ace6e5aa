"""Permission levels and the rules that they apply."""
