"""The script's own, in whose place the library has another."""
