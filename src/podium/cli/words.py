"""Commands that take words: an option that there is not may be a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from podium.core.errors import PodiumError


class WordsCommand(TyperCommand):
    """A command whose settings are words: `--lr 1e-3` is refused with `algo.lr=1e-3`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)  # click's NoSuchOption, of which typer may have its own
            said = _setting(str(option), given, self.name == "evolve") if option is not None else None
            if said is None:
                raise
            raise PodiumError(said) from error


def _setting(option: str, args: Sequence[str], evolves: bool) -> str | None:
    """What to write in place of an option, if that is a setting."""
    from podium import lookup, naming

    at = next((i for i, arg in enumerate(args) if arg.partition("=")[0] == option or _short(arg, option)), None)
    if at is None:
        return None
    name, equals, value = args[at].partition("=")
    following = args[at + 1] if at + 1 < len(args) else "-"
    if not equals and not following.startswith("-") and "=" not in following:
        value = following
    algo = next((arg for arg in args if arg in lookup.ALGORITHMS), None)
    return naming.meant(name, name, value or "VALUE", algo, evolves)


def _short(arg: str, option: str) -> bool:
    """Whether `option` is what click made of `-lr`, which it reads as `-l -r`."""
    return len(option) == 2 and arg.startswith(option) and not arg.startswith("--")
