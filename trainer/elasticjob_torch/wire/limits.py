# SPDX-License-Identifier: Apache-2.0
"""Limits and times of the trainer API, which both sides keep."""

from __future__ import annotations

PORT = 27600  # on the pod's loopback

NAME_LENGTH = 64  # of a trainer's or script's name
SCRIPT_LENGTH = 64  # of the name of a script's file; the rest is cut off
DETAIL_LENGTH = 300  # characters of what failed; the rest is cut off
MAX_EXIT_CODE = 255
MAX_METRICS, METRIC_NAME_LENGTH = 16, 64
MAX_IMPORTS, IMPORT_LENGTH, IMPORTS_LENGTH = 256, 128, 8192  # the last: characters of all, with a comma between two
IMPORT_NAME = "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"
MAX_JSON_INTEGER = 2**53 - 1  # the largest number that every reader of JSON takes as it is
LONGEST_SECONDS = 86400  # of any wait
SHORTEST_WORKER_LOST_SECONDS = 10

BODY_BYTES, BODY_SECONDS = 64 * 1024, 5.0  # of a request's body, and how long it may take to come
HEAD_BYTES, HEADERS = 2048, 32  # of the request's line and of a header; how many headers
MAX_CONNECTIONS = 512  # each script's stream, the trainer's, and short calls; the next one is closed unanswered
MAX_SCRIPTS = 256  # open streams of scripts; more processes than any node has devices
IDLE_SECONDS = 60.0  # without a request, or without all of one's headers; longer than clients keep a connection

# --- times

COMMENT_SECONDS = 10.0  # a stream on which nothing happens says at least that much
SILENCE_SECONDS = 30.0  # a stream that is silent for longer has lost its sidecar
ANSWER_SECONDS = 10.0  # for a call that has nothing to wait for
MARGIN_SECONDS = 5.0  # what a call that waits may take over the time it was given
PREDECESSOR_SECONDS = 5.0  # how long a trainer's stream waits for the end of another trainer of the pod
STORE_SECONDS = 30.0  # how long a question for the store waits that names no time
# As long as the API server is away, a trainer that ends in success is held here: its word must not be lost.
RECORDED_SECONDS = 300.0

# torchrun's exit code in a worker that has no part in the training any more and has not finished it: scaled away, or a
# spare at the end of the job. Not 0, or a shell would go on as after a success.
LEFT_EXIT_CODE = 75
