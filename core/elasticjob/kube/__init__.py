# SPDX-License-Identifier: Apache-2.0
"""The API server as all parts use it: paths, errors, retries, watches. The transports are the parts' own."""
