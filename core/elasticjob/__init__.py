"""ElasticJob's common core: the API types and the rendezvous state machine. Imports pydantic and the standard library only."""
