# SPDX-License-Identifier: Apache-2.0
"""The last import of the process that all others are forked from: what it has is for good.

Else each garbage collection in a fork looks at all objects of torch, and so copies their memory: a quarter of a second
of a processor.
"""

import gc

gc.collect()
gc.freeze()
