"""The benchmark of the replay: our side alone, and all of it where its peers are installed."""

from __future__ import annotations

import importlib.util

import pytest

from podium.bench import replay as bench
from podium.core.errors import PodiumError

PEERS = any(importlib.util.find_spec(name) for name in ("tianshou", "torchrl"))


def test_our_side_has_17_numbers_a_step_and_takes_its_turns() -> None:
    insert, sample = bench.podium(8000)
    for i in range(3):
        insert(i)
        sample(i)
    replay = insert.__closure__[0].cell_contents  # type: ignore[index]
    assert replay.ring.data.shape == (1, 1000, 8, 17) and replay.size.tolist() == [8000]


def test_without_any_peer_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(bench.importlib, "import_module", missing)
    with pytest.raises(PodiumError, match=r"bench/replay-peers\.txt"):
        bench.main(1, quick=True)


def test_a_peer_that_does_not_work_is_left_out() -> None:
    def broken(items: int) -> None:
        raise RuntimeError("compiled for another torch")

    made = {"broken": broken, "podium": bench.podium}
    with pytest.warns(UserWarning, match="broken does not work here"):
        assert list(bench._usable(made)) == ["podium"]


@pytest.mark.skipif(not PEERS, reason="neither tianshou nor torchrl is installed")
def test_both_rows() -> None:
    rows = bench.main(1, quick=True)
    assert [row["key"] for row in rows] == ["replay/insert", "replay/sample"]
    assert all(row["ratio"] > 0 and row["threads"] == 1 and row["peer_name"] in bench.__dict__ for row in rows)
