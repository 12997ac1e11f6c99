"""The other side of a protocol, played by a script."""
