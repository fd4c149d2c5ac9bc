"""Recordings of production: their format, how they are written, and their replay."""
