"""The version of longstep."""

__version__ = "0.1.0"
