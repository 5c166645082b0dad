"""What the sidecar refuses: a word of `Code` for the plug-in to go by, and a sentence for people."""

from enum import StrEnum


class Code(StrEnum):
    BAD_REQUEST = "BadRequest"
    NO_TRAINER = "NoTrainer"  # no open events stream of this trainer
    SUPERSEDED = "Superseded"  # a newer trainer process of this pod has taken its place
    CLOSED = "Closed"
    LEAVING = "Leaving"
    JOIN_TIMEOUT = "JoinTimeout"
    ROUND_BROKEN = "RoundBroken"
    STORE_TIMEOUT = "StoreTimeout"
    NOT_A_MEMBER = "NotAMember"
    NOT_YET = "NotYet"  # the store is not served yet
    TOO_MANY = "TooMany"
    API_AWAY = "ApiServerAway"


class Refused(Exception):
    """A request of the trainer, or of another sidecar, that cannot be granted. `outcome` goes with Closed."""

    def __init__(self, code: Code, message: str, outcome: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.outcome = code, message, outcome
