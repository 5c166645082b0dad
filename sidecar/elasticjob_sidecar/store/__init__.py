"""The round's TCPStore across pods: a loopback port here, TLS between sidecars, and who may come through."""
