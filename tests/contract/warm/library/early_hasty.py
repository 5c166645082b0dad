# SPDX-License-Identifier: Apache-2.0
"""Starts a thread, but only when no script runs yet: what nobody could have learned from the script."""

import threading

from early_package import is_early

if is_early():
    threading.Thread(target=threading.Event().wait, name="early_hasty", daemon=True).start()
