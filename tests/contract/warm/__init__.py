# SPDX-License-Identifier: Apache-2.0
"""What proves that a warm start is like a fresh one: `training` looks at itself, `runs` lets it train both ways."""
