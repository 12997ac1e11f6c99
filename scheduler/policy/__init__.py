"""Which job gets which slot: pure decisions over what is known, without I/O."""
