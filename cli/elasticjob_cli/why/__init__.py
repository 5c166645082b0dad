# SPDX-License-Identifier: Apache-2.0
"""Why a job does not train at full size: a table of causes, and a paragraph. Pure."""
