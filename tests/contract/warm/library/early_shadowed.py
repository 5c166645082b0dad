"""The one of the library."""
