"""What an evolving run searches: the ranges of the user, or what the algorithm names, never what the user fixed."""

import pytest

from podium import entrants
from podium.compose import compose, said
from podium.core.errors import ConfigError, PodiumError

USUAL = {"lr", "discount", "lam", "clip", "entropy"}


def searched(*words):
    """The genes with a range, an entrant each."""
    tree = entrants.complete(compose(words), said(words))
    algos = [entrant["algo"] for entrant in tree["evolve"].get("entrants", [tree])]
    return [{name for name, value in algo.items() if name in USUAL and isinstance(value, list)} for algo in algos]


def test_the_usual_genes_are_searched_where_nobody_says_which():
    assert searched("cartpole", "ppo") == [USUAL]  # though the preset gives each of them a value


def test_a_range_of_the_user_is_all_that_is_searched():
    assert searched("cartpole", "ppo", "algo.lr=[1e-4,1e-2]") == [{"lr"}]


def test_a_value_of_the_user_stays(tmp_path):
    assert searched("cartpole", "ppo", "algo.lr=1e-3") == [USUAL - {"lr"}]
    (tmp_path / "mine.yaml").write_text("algo: {name: ppo, clip: 0.3}\n")
    assert searched("cartpole", str(tmp_path / "mine.yaml")) == [USUAL - {"clip"}]
    kinds = "evolve.entrants=[ppo,{algo: {name: ppo, lam: 0.5}}]"
    assert searched("cartpole", kinds, "algo.lr=1e-3") == [USUAL - {"lr"}, USUAL - {"lr", "lam"}]


def test_a_value_and_a_search_of_the_same_gene_contradict_each_other():
    with pytest.raises(ConfigError, match=r"algo.lr: 0.001 .* since evolve.genes names it"):
        searched("cartpole", "ppo", "algo.lr=1e-3", "evolve.genes=[lr]")
    assert searched("cartpole", "ppo", "evolve.genes=[lr]") == [{"lr"}]


def test_a_file_counts_for_the_algorithm_it_is_for(tmp_path):
    (tmp_path / "tuned.yaml").write_text("for: {ppo: {algo: {lr: 1.0e-3}}}\n")
    assert searched("cartpole", "ppo", str(tmp_path / "tuned.yaml")) == [USUAL - {"lr"}]
    (tmp_path / "ppo.yaml").write_text("algo: {name: ppo, lr: 1.0e-3}\n")
    ppo, a2c = searched("cartpole", str(tmp_path / "ppo.yaml"), "evolve.entrants=[ppo,a2c]")
    assert "lr" not in ppo and "lr" in a2c


def test_what_evolution_would_not_heed_is_refused():
    with pytest.raises(ConfigError, match=r"algo.anneal: \['lr'\] is not allowed; \[\]: evolution makes the schedules"):
        searched("cartpole", "ppo", "algo.anneal=[lr]")
    with pytest.raises(PodiumError, match=r"a2c: not one of evolve.entrants, ppo; add it or leave it out"):
        searched("cartpole", "a2c", "evolve.entrants=[ppo]")
    with pytest.raises(ConfigError, match="this one names no algorithm"):
        searched("cartpole", "evolve.entrants=[{net: {hidden: [3]}}]")
