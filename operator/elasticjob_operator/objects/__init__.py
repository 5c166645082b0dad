"""The objects that the operator makes, rendered from a job. Pure."""
