"""Agents of sb3-contrib as members, by the adapter of Stable-Baselines3's.

Two of its algorithms are not here. ARS learns from whole episodes of all its perturbations at once, so it cannot train
for a given number of steps. MaskablePPO asks the env's method `action_masks`; Podium's envs show the mask as a part of
the observation, and `ppo` obeys it.
"""

from __future__ import annotations

from podium.core.errors import MissingExtra
from podium.guests import sb3_settings as settings
from podium.guests.sb3 import SB3

try:
    import sb3_contrib
except ImportError as missing:
    raise MissingExtra("sb3-contrib", "sb3") from missing


class SB3TQC(SB3):
    Model, Settings = sb3_contrib.TQC, settings.SB3TQCSettings


class SB3QRDQN(SB3):
    Model, Settings = sb3_contrib.QRDQN, settings.SB3QRDQNSettings


class SB3CrossQ(SB3):
    Model, Settings = sb3_contrib.CrossQ, settings.SB3CrossQSettings


class SB3TRPO(SB3):
    Model, Settings = sb3_contrib.TRPO, settings.SB3TRPOSettings


class SB3RecurrentPPO(SB3):
    Model, Settings = sb3_contrib.RecurrentPPO, settings.SB3RecurrentPPOSettings
