"""An algorithm of your own: REINFORCE (Williams 1992) with a learnt baseline, M members at once, by autograd."""

import sys

import podium
from podium.algos.base import AlgoSettings
from podium.algos.on_policy import OnPolicy
from podium.core.hyper import GeneValue, gene
from podium.nets.optim import Adam
from podium.ops.grad import backward


class Reinforce:
    class Settings(AlgoSettings):
        lr: GeneValue = gene(5e-3, 1e-5, 1e-1)  # genes: default, and the range they may be drawn from
        discount: GeneValue = gene(0.98, 0.5, 0.9999, "one-minus-log", most=1)
        steps: int = 64  # all else is the plan, shared by the stack

    def __init__(self, spec, settings, net, genes, streams):
        self.genes, self.core = genes, OnPolicy(spec, net, streams, settings.steps, log_std=0.0)
        self.act, self.propose, self.slot = self.core.act, self.core.propose, self.core.slot
        self.optimiser = Adam(self.core.net.params)

    def learn(self, batch, remaining=None):
        net, data = self.core.net, self.core.experience(batch, self.genes["discount"], lam=1.0)  # [M, T * E]
        params, value = net(data["obs"])
        policy = -(net.dist.log_prob(params, data["action"]) * data["advantage"]).mean(1)
        loss = policy + 0.5 * (value - data["return"]).square().mean(1)  # a mean over data, [M]
        backward(loss, net.params)  # a sum over members
        self.optimiser.step(self.genes["lr"])
        return {"policy": policy.detach(), "finite": loss.isfinite() & net.finite()}

    def learnt(self):
        return self.core.learnt() | {"optimiser": self.optimiser.state(), "genes": self.genes}


if __name__ == "__main__":  # this file is imported again, by its name
    words = "cartpole", "algo=04_own_algorithm:Reinforce", "train.members=4", "algo.lr=[1e-3,2e-2]", "stop.steps=30000"
    result = podium.train(*words, *sys.argv[1:], out="runs/own_algorithm", fresh=True)
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    for row in result.top:
        print(f"{row['rank']}. member {row['id']}: {row['fitness']:.1f} with lr {row['genes']['lr']:.2g}")
