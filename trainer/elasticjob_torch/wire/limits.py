# SPDX-License-Identifier: Apache-2.0
"""Limits and times of the trainer API, which both sides observe."""

from __future__ import annotations

PORT = 27600  # on the pod's loopback

NAME_LENGTH = 64  # of a trainer's or script's name
SCRIPT_LENGTH = 64  # of the name of a script's file; the rest is cut off
DETAIL_LENGTH = 300  # characters of what failed; the rest is cut off
MAX_EXIT_CODE = 255
MAX_METRICS, METRIC_NAME_LENGTH = 16, 64
MAX_IMPORTS, IMPORT_LENGTH, IMPORTS_LENGTH = 256, 128, 8192  # the last: characters of all, separated by commas
IMPORT_NAME = "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"
MAX_JSON_INTEGER = 2**53 - 1  # the largest integer that every JSON reader keeps exact
LONGEST_SECONDS = 86400  # of any wait
SHORTEST_WORKER_LOST_SECONDS = 10

BODY_BYTES, BODY_SECONDS = 64 * 1024, 5.0  # of a request's body: its size, and the time it may take to arrive
HEAD_BYTES, HEADERS = 2048, 32  # size of the request line and of a header; number of headers
MAX_CONNECTIONS = 512  # each script's stream, the trainer's, and short calls; further ones are closed unanswered
MAX_SCRIPTS = 256  # open streams of scripts; more processes than any node has devices
IDLE_SECONDS = 60.0  # without a request, or without all of its headers; longer than clients keep a connection

# --- times

COMMENT_SECONDS = 10.0  # a stream without events carries a comment at this interval
SILENCE_SECONDS = 30.0  # a stream that is silent for longer has lost its sidecar
ANSWER_SECONDS = 10.0  # for a call that has nothing to wait for
MARGIN_SECONDS = 5.0  # how much longer a waiting call may take than the time it was given
PREDECESSOR_SECONDS = 5.0  # how long a trainer's stream waits for the end of another trainer of the pod
STORE_SECONDS = 30.0  # how long a request for the store waits if it names no time
# While the API server is unavailable, a trainer that ends in success is held here: its success must not be lost.
RECORDED_SECONDS = 300.0

# torchrun's exit code in a worker that no longer takes part in the training and has not finished it: scaled away, or a
# spare at the end of the job. Not 0, or a shell would continue as after a success.
LEFT_EXIT_CODE = 75
