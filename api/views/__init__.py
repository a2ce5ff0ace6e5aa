"""What the domain knows, as the contract shows it; and what the contract asks for, as the domain's.

Nothing is changed here, nobody asked.
"""
