"""Code: cells of a program, executed one after the other in contexts that keep their names."""
