# SPDX-License-Identifier: Apache-2.0
"""The round's TCPStore across pods: a loopback port in each pod, TLS between sidecars, and admission."""
