"""Whole servers in virtual time: what acts in such a world, what is broken in it, and what must hold."""
