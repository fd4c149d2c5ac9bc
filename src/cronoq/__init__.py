"""The Trio runtime of cronoq: sockets, clocks, stores, processes and the command line around `cronoq_sansio`."""

__all__ = ["__version__"]

__version__ = "0.1.0"
