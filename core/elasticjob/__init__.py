"""Code that all parts share: the API types and the rendezvous state machine."""

__version__ = "0.1.0"
