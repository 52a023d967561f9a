"""Text of unknown origin, such as error messages, made fit for files, databases, sockets and terminals."""

from __future__ import annotations

import sys


def encodable(text: str) -> str:
    """Escapes what UTF-8 cannot hold: lone surrogates, which file names with bad bytes contain."""
    return text.encode("utf-8", "backslashreplace").decode()


def warn(text: str) -> None:
    """Says something on stderr at once, however quiet a command is."""
    print(f"podium: warning: {text}", file=sys.stderr, flush=True)
