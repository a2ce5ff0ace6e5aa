"""Operations of turns: each a function with typed parameters, and the registry of all."""
