"""Language models that turns call: the operator's endpoints, and what their calls cost."""
