# SPDX-License-Identifier: Apache-2.0
"""Cannot be imported before the script runs."""

from early_package import is_early

if is_early():
    raise RuntimeError("no script runs yet")
