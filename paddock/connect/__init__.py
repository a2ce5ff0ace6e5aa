"""Which control plane is meant, and with which key: arguments, variables, contexts, or here."""
