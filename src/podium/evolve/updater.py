"""Updaters: who may enter the leaderboard. Its size and order decide the rest."""

from __future__ import annotations

from collections.abc import Callable

Updater = Callable[[float, float | None], bool]
"""(fitness, fitness that its parent had when it was copied) -> whether it may enter"""


def score(fitness: float, parent: float | None) -> bool:
    """Anyone, as good as they are."""
    return True


def strictly_better(fitness: float, parent: float | None) -> bool:
    """Only a member that is better than its parent was: copies that learnt nothing do not fill the board."""
    return parent is None or fitness > parent


UPDATERS: dict[str, Updater] = {"score": score, "strictly-better": strictly_better}
