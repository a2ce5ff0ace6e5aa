"""Tools: interactive programs whose every line of input is declared, typed and authorized."""
