# SPDX-License-Identifier: Apache-2.0
"""Access to the API server for all parts: paths, errors, retries, watches. Each part has its own transport."""
