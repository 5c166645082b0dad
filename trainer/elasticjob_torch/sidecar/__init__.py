"""The client of the sidecar's API, with the standard library alone."""
