"""Gymnasium's MuJoCo tasks (v5) over many envs at once: what is seen, what is rewarded, how an episode starts.

A task reads its model and its weights from one env object of Gymnasium's, so all its keywords count here, too.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.core.streams import Generators, normal, uniform

Array = NDArray[np.float64]
State = dict[str, Array]
"""Fields of MjData by their names, each `[N, ...]`: `qpos`, `qvel`, `ctrl`, and those that a task `reads`."""


class Task:
    """Of N envs; `gym` is the env object behind all wrappers."""

    reads: tuple[str, ...] = ()
    forces: ClassVar[bool] = False  # whether `cfrc_ext` is read, which MuJoCo computes only if told to
    gaussian: ClassVar[bool] = False  # whether the velocities of a start are normal, else uniform

    def __init__(self, gym: Any) -> None:
        self.gym = gym
        self.noise: float = getattr(gym, "_reset_noise_scale", 0.0)
        self.qpos, self.qvel = torch.as_tensor(gym.init_qpos), torch.as_tensor(gym.init_qvel)

    def place(self, s: State) -> Array:
        """Where the body is on its way, `[N]`; `judge` is given it as it was before the step."""
        return s["qpos"][:, 0]

    def observe(self, s: State) -> Array:
        """`[N, O]`"""
        return np.concatenate((s["qpos"], s["qvel"]), 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Reward and terminated, `[N]`, of a step that led to `s`."""
        raise NotImplementedError

    def start(self, generators: Generators, *shape: int) -> Tensor:
        """Starts of episodes, positions and velocities, `[M, *shape, nq + nv]`."""
        still = self.qpos + self.noise * _spread(generators, *shape, len(self.qpos))
        if self.gaussian:
            pushed = self.qvel + self.noise * normal(generators, *shape, len(self.qvel)).double()
        else:
            pushed = self.qvel + self.noise * _spread(generators, *shape, len(self.qvel))
        return torch.cat((still, pushed), -1)


class Runner(Task):
    """Rewarded for its speed along x, less what its actions cost."""

    hidden: ClassVar[int] = 1  # positions that say where it is, not how it stands

    def __init__(self, gym: Any) -> None:
        super().__init__(gym)
        self.dt: float = self.gym.dt
        self.forward: float = self.gym._forward_reward_weight
        self.effort: float = self.gym._ctrl_cost_weight
        self.first = self.hidden if self.gym._exclude_current_positions_from_observation else 0

    def observe(self, s: State) -> Array:
        return np.concatenate((s["qpos"][:, self.first :], s["qvel"]), 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        velocity = (self.place(s) - place) / self.dt
        reward: Array = self.forward * velocity - self.effort * np.square(action).sum(1)
        return reward, np.zeros(len(reward), np.bool_)


class HalfCheetah(Runner):
    gaussian = True


class Swimmer(Runner):
    hidden = 2


class Walker(Runner):
    """One that may fall: it is paid for standing, and its episode ends where it does not stand."""

    def __init__(self, gym: Any) -> None:
        super().__init__(gym)
        self.standing: float = self.gym._healthy_reward
        self.falls: bool = bool(self.gym._terminate_when_unhealthy)
        self.height: tuple[float, float] = self.gym._healthy_z_range

    def healthy(self, s: State) -> NDArray[np.bool_]:
        z, angle = s["qpos"][:, 1], s["qpos"][:, 2]
        return _between(self.height, z) & _between(self.gym._healthy_angle_range, angle)

    def observe(self, s: State) -> Array:
        return np.concatenate((s["qpos"][:, self.first :], s["qvel"].clip(-10, 10)), 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        healthy = self.healthy(s)
        reward = super().judge(s, place, action)[0] + self.standing * healthy
        return reward, ~healthy & self.falls


class Hopper(Walker):
    def healthy(self, s: State) -> NDArray[np.bool_]:
        range_ = self.gym._healthy_state_range
        whole = _between(range_, s["qpos"][:, 2:]).all(1) & _between(range_, s["qvel"]).all(1)
        return super().healthy(s) & whole


class Ant(Walker):
    hidden, gaussian, forces, reads = 2, True, True, ("xpos", "cfrc_ext")

    def __init__(self, gym: Any) -> None:
        super().__init__(gym)
        self.torso: int = self.gym.model.body(self.gym._main_body).id

    def place(self, s: State) -> Array:
        return s["xpos"][:, self.torso, 0]

    def healthy(self, s: State) -> NDArray[np.bool_]:
        (low, high), z = self.height, s["qpos"][:, 2]
        return (low <= z) & (z <= high) & np.isfinite(s["qpos"]).all(1) & np.isfinite(s["qvel"]).all(1)

    def observe(self, s: State) -> Array:
        seen = [s["qpos"][:, self.first :], s["qvel"]]
        if self.gym._include_cfrc_ext_in_observation:
            seen.append(_flat(s["cfrc_ext"][:, 1:]).clip(*self.gym._contact_force_range))
        return np.concatenate(seen, 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        reward, terminated = super().judge(s, place, action)
        forces = s["cfrc_ext"].clip(*self.gym._contact_force_range)
        return reward - self.gym._contact_cost_weight * np.square(forces).sum((1, 2)), terminated


class Humanoid(Walker):
    hidden, forces = 2, True

    def __init__(self, gym: Any) -> None:
        super().__init__(gym)
        flags = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
        self.seen = tuple(name for name in flags if getattr(gym, f"_include_{name}_in_observation") is True)
        self.reads = tuple(dict.fromkeys(("xipos", "cfrc_ext", *self.seen)))
        self.mass: Array = self.gym.model.body_mass / self.gym.model.body_mass.sum()

    def place(self, s: State) -> Array:
        return s["xipos"][:, :, 0] @ self.mass

    def healthy(self, s: State) -> NDArray[np.bool_]:
        return _between(self.height, s["qpos"][:, 2])

    def observe(self, s: State) -> Array:
        # The world, which is body 0, and the six free directions of the torso are left out.
        more = [s[name][:, 6:] if name == "qfrc_actuator" else _flat(s[name][:, 1:]) for name in self.seen]
        return np.concatenate((s["qpos"][:, self.first :], s["qvel"], *more), 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        # MuJoCo's controls: it sets them to 0 where a simulation diverges.
        reward, terminated = super().judge(s, place, s["ctrl"])
        cost = self.gym._contact_cost_weight * np.square(s["cfrc_ext"]).sum((1, 2))
        return reward - cost.clip(*self.gym._contact_cost_range), terminated


class Reacher(Task):
    reads = ("xpos",)

    def __init__(self, gym: Any) -> None:
        super().__init__(gym)
        self.tip, self.target = (self.gym.model.body(name).id for name in ("fingertip", "target"))

    def _gap(self, s: State) -> Array:
        gap: Array = s["xpos"][:, self.tip] - s["xpos"][:, self.target]
        return gap

    def observe(self, s: State) -> Array:
        qpos = s["qpos"]
        angle = qpos[:, :2]
        return np.concatenate((np.cos(angle), np.sin(angle), qpos[:, 2:], s["qvel"][:, :2], self._gap(s)[:, :2]), 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        far = np.sqrt(np.square(self._gap(s)).sum(1)) * self.gym._reward_dist_weight
        reward: Array = -far - np.square(action).sum(1) * self.gym._reward_control_weight
        return reward, np.zeros(len(reward), np.bool_)

    def start(self, generators: Generators, *shape: int) -> Tensor:
        still = self.qpos + 0.1 * _spread(generators, *shape, len(self.qpos))
        pushed = self.qvel + 0.005 * _spread(generators, *shape, len(self.qvel))
        # Even in a disc of radius 0.2: Gymnasium draws from the square until a point lies in it.
        radius, turn = uniform(generators, *shape, 2, dtype=torch.float64).unbind(-1)
        radius, turn = 0.2 * radius.sqrt(), 2 * math.pi * turn
        still[..., -2:] = torch.stack((radius * turn.cos(), radius * turn.sin()), -1)
        pushed[..., -2:] = 0
        return torch.cat((still, pushed), -1)


class InvertedPendulum(Task):
    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        sound = np.isfinite(s["qpos"]).all(1) & np.isfinite(s["qvel"]).all(1)
        up = sound & (np.abs(s["qpos"][:, 1]) <= 0.2)
        return up.astype(np.float64), ~up


class InvertedDoublePendulum(Task):
    gaussian, reads = True, ("site_xpos", "qfrc_constraint")

    def observe(self, s: State) -> Array:
        qpos, force = s["qpos"], s["qfrc_constraint"][:, :1].clip(-10, 10)
        angle = qpos[:, 1:]
        return np.concatenate((qpos[:, :1], np.sin(angle), np.cos(angle), s["qvel"].clip(-10, 10), force), 1)

    def judge(self, s: State, place: Array, action: Array) -> tuple[Array, NDArray[np.bool_]]:
        x, y = s["site_xpos"][:, 0, 0], s["site_xpos"][:, 0, 2]
        v1, v2 = s["qvel"][:, 1], s["qvel"][:, 2]
        terminated = y <= 1
        far, fast = 0.01 * x**2 + (y - 2) ** 2, 1e-3 * v1**2 + 5e-3 * v2**2
        return self.gym._healthy_reward * ~terminated - far - fast, terminated


TASKS: dict[str, type[Task]] = {
    f"gymnasium.envs.mujoco.{file}_v5:{name}Env": task
    for file, name, task in (
        ("half_cheetah", "HalfCheetah", HalfCheetah),
        ("hopper", "Hopper", Hopper),
        ("walker2d", "Walker2d", Walker),
        ("ant", "Ant", Ant),
        ("humanoid", "Humanoid", Humanoid),
        ("swimmer", "Swimmer", Swimmer),
        ("reacher", "Reacher", Reacher),
        ("inverted_pendulum", "InvertedPendulum", InvertedPendulum),
        ("inverted_double_pendulum", "InvertedDoublePendulum", InvertedDoublePendulum),
    )
}
"""By entry point, as Gymnasium's registry names it: an id of one's own for the same class is the same task."""


def _spread(generators: Generators, *shape: int) -> Tensor:
    """Numbers in [-1, 1), `[M, *shape]`."""
    return uniform(generators, *shape, dtype=torch.float64) * 2 - 1


def _between(range_: tuple[float, float], x: Array) -> NDArray[np.bool_]:
    return (range_[0] < x) & (x < range_[1])


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)
