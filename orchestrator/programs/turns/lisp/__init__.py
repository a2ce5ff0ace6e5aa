"""A small, pure Lisp for turn programs: reader, compiler, evaluator, builtins and printer."""
