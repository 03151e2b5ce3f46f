"""Suture: label a few frames, segment every video."""

__version__ = "0.1.0"
