# SPDX-License-Identifier: Apache-2.0
"""`kubectl elasticjob`: what a job does, why it waits, and what people do to it; it can do no more than kubectl."""
