"""Where what is new belongs, and where what has a name is."""
