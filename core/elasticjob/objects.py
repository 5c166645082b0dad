"""What all parts call an object of the API server: its JSON as it came, checked only where a model reads it."""

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
