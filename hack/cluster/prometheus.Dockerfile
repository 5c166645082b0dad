# SPDX-License-Identifier: Apache-2.0
# Prometheus and promtool, as Debian packages them, for the tests of the metrics, the alerts and the dashboard.
FROM debian:trixie-slim
WORKDIR /tmp/packages
RUN apt-get update -qq \
    && apt-get download -qq prometheus promtool 2>/dev/null \
    && for package in *.deb; do dpkg-deb --extract "$package" ../unpacked; done \
    && cp ../unpacked/usr/bin/prometheus ../unpacked/usr/bin/promtool /usr/local/bin/ \
    && rm -rf /tmp/packages /tmp/unpacked /var/lib/apt/lists/*
USER 65534:65534
