"""Where tasks are kept: one interface, `base`, and the stores that implement it."""
