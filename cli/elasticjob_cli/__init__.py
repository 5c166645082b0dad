# SPDX-License-Identifier: Apache-2.0
"""`kubectl elasticjob`: what a job does, why it waits, and changes to it. It has no more rights than kubectl."""
