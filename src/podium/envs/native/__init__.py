"""Simulators as tensor programs, by the Gymnasium id of the twin that each agrees with step for step."""

import gymnasium as gym

from podium.envs.native.acrobot import Acrobot
from podium.envs.native.base import Simulator
from podium.envs.native.cartpole import CartPole
from podium.envs.native.mountain_car import MountainCar
from podium.envs.native.mountain_car_continuous import MountainCarContinuous
from podium.envs.native.pendulum import Pendulum
from podium.envs.native.pong import Pong
from podium.envs.native.tabular import CliffWalking, FrozenLake, Taxi

SIMULATORS: dict[str, type[Simulator]] = {
    "Acrobot-v1": Acrobot,
    "CartPole-v1": CartPole,
    "CliffWalking-v1": CliffWalking,
    "FrozenLake-v1": FrozenLake,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
    "Taxi-v4": Taxi,
    "VectorPong-v0": Pong,
}
gym.register("VectorPong-v0", "podium.envs.native.pong_env:PongEnv", max_episode_steps=int(Pong.time_limit))
