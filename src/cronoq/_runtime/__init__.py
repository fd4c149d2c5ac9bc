"""The Trio runtime: terms, the driver, listeners and connections around the pure core."""
