# SPDX-License-Identifier: Apache-2.0
"""Starts a thread when it is imported."""

import threading

threading.Thread(target=threading.Event().wait, name="early_thread", daemon=True).start()
