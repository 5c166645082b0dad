"""What others wrote, as people may read it."""


def plain(text: str, length: int) -> str:
    """`text` on one line, without what cannot be printed, and at most `length` characters of it."""
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    return " ".join(words)[:length]
