# SPDX-License-Identifier: Apache-2.0
"""Why a job does not train at full size: one table of causes, and one paragraph. Pure."""
