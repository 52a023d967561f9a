"""Text of unknown origin, such as error messages, made fit for files, databases, sockets and terminals."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Escapes what UTF-8 cannot hold: lone surrogates, which file names with bad bytes contain."""
    return text.encode("utf-8", "backslashreplace").decode()
