"""Three machines with nothing in common but a network, as namespaces of this one: ``python -m tests.machines``."""
