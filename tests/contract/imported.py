# SPDX-License-Identifier: Apache-2.0
"""The last import of a process that others are forked from: what it has is for good.

Else each garbage collection in a fork looks at all objects of its libraries, and so copies their memory: with torch a
quarter of a second of a processor.
"""

import gc

gc.collect()
gc.freeze()
