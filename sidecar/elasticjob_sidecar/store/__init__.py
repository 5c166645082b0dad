# SPDX-License-Identifier: Apache-2.0
"""The round's TCPStore across pods: a loopback port here, TLS between sidecars, and who may come through."""
