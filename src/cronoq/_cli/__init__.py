"""The command line: one file per group of commands, each importing what it runs only when it runs."""
