"""Envs that break in the ways envs do, for the tests of workers and of the contract."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Sick(gym.Env[Any, Any]):
    """Counts its steps and ends after `length`; breaks at `step`, as often as `times` over all that share a folder."""

    observation_space = spaces.Box(0, 1000, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, how: str = "no", step: int = 3, length: int = 6, folder: str = "", times: int = 1) -> None:
        self.how, self.when, self.length, self.folder, self.times = how, step, length, folder, times
        if how == "build":
            self.maybe()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.start = float(self.np_random.integers(1000))
        if self.how == "reset":
            self.maybe()
        return np.array([0, self.start], np.float32), {"cost": 1.0}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        obs, reward = np.array([self.t, self.start], np.float32), 1.0
        if self.t == self.when and self.how not in ("no", "build", "reset"):
            broken = self.maybe()
            obs, reward = (obs * np.nan if broken == "obs" else obs), (np.nan if broken == "reward" else reward)
        return obs, reward, self.t == self.length, False, {"cost": 1.0}

    def maybe(self) -> str:
        """Break, if that has not been done often enough; a file is made each time."""
        for i in range(self.times):
            try:
                os.close(os.open(Path(self.folder) / str(i), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if self.how == "abort":
                os.abort()
            if self.how == "exit":
                os._exit(3)
            if self.how == "hang":
                time.sleep(60)
            if self.how == "bad text":
                raise FileNotFoundError("no file \udc80")
            if self.how in ("raise", "reset", "build"):
                raise RuntimeError("the dog ate it")
            return self.how
        return "no"


class Parent(Sick):
    """Starts a process of its own, as envs around a game do, and tells which."""

    def __init__(self, file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.child = subprocess.Popen(["sleep", "60"])
        new = Path(f"{file}-{self.child.pid}")
        new.write_text(f"{os.getpid()} {self.child.pid}")
        new.rename(file)


class Slow(Sick):
    """Takes its time for all that it does, and every other episode raises."""

    def __init__(self, seconds: float) -> None:
        super().__init__(length=1)
        self.seconds, self.episodes = seconds, 0
        time.sleep(seconds)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        time.sleep(self.seconds)
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        if self.episodes % 2 == 0:
            raise RuntimeError("every other time")
        return super().step(action)

    def close(self) -> None:
        time.sleep(self.seconds)


class Deaf(Sick):
    """Does not let a friendly word end it, unless it is the first of its process: that one only tells the spaces."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Deaf.made += 1
        self.deaf = Deaf.made > 1

    def close(self) -> None:
        time.sleep(60 * self.deaf)


class Odd(gym.Env[Any, Any]):
    """Breaks one of Gymnasium's rules."""

    def __init__(self, rule: str = "none") -> None:
        self.rule = rule
        self.observation_space = spaces.Box(-1, 1, (2,), np.int32 if rule == "dtype" else np.float32)
        self.action_space = spaces.Dict(a=spaces.Discrete(2)) if rule == "action" else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs = np.zeros(2, self.observation_space.dtype)
        return {"reset": obs, "info": (obs, None), "shape": (obs[:1], {})}.get(self.rule, (obs, {}))

    def step(self, action: Any) -> Any:
        if self.rule == "raise":
            raise ValueError("no licence")
        obs = np.zeros(2, np.float32)
        obs = obs + {"outside": 5, "nan": np.nan}.get(self.rule, 0)
        reward = {"reward": None, "nan reward": np.nan, "array": np.zeros(1)}.get(self.rule, 1.0)
        answer = obs, reward, "no" if self.rule == "flag" else False, False, {}
        return answer[:4] if self.rule == "step" else answer


class Choices(gym.Env[Any, Any]):
    """Shows its last action."""

    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = spaces.MultiDiscrete([3, 2], start=[5, 0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros((2, 2), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([action, action], np.uint8), 1.0, False, False, {}
