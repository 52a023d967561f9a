"""Randomised ensembled double Q-learning (Chen et al. 2021): SAC with many critics and many updates a step.

    y = r + γ (min_{k in S} Q'_k(s', a') - α log π(a'|s')),    S: 2 of the 10 critics, drawn for each update
    policy  min  E[α log π(a|s) - mean_k Q_k(s, a)]

All of it is settings: `critic.count`, `critic.target=subset`, `critic.policy=mean`, `algo.updates`, and `algo.delay`,
by which the policy is updated once a step.
"""

from __future__ import annotations

from pydantic import Field

from podium.algos.sac import SAC, SACSettings
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable


class REDQSettings(SACSettings):
    """`algo.*` for REDQ."""

    name: Importable = "redq"
    delay: GeneValue = gene(20, 1, 32, "int", least=1)
    updates: float = Field(20.0, gt=0, le=1000, description="updates per stored step; replay.ratio takes its place")


class REDQ(SAC):
    """A stack of REDQ agents."""

    Settings = REDQSettings
