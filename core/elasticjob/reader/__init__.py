"""Reads a worker's pod and record, for the operator and the command line tool alike. Pure."""
