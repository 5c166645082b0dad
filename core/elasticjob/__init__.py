"""What all parts share: the API types and the rendezvous state machine."""
