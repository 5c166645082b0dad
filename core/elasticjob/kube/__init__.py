"""Access to the API server for all parts: paths, errors, retries, watches. Each part has its own transport."""
