"""An algorithm of your own with a replay: soft Q-learning (Haarnoja et al. 2017), M members at once."""

import sys

import podium
from podium.algos.off_policy import OffPolicy, OffPolicySettings
from podium.core.hyper import GeneValue, gene
from podium.core.streams import Block, gumbel
from podium.nets.critics import Critics


class SoftQ(OffPolicy):
    class Settings(OffPolicySettings):
        lr: GeneValue = gene(1e-3, 1e-5, 1e-1)
        heat: GeneValue = gene(0.3, 1e-2, 10.0)  # how much a member likes to try, a gene as any other
        check = OffPolicySettings.needs_discrete  # what it refuses before the start

    def __init__(self, spec, settings, net, genes, streams, critic):
        super().__init__(spec, settings, genes)
        n = int(spec.action.n)
        self.critics = Critics(streams.agent, net, critic, self.size, n, spec.device)
        self.dice = Block(lambda: gumbel(streams.agent, 1024, spec.envs, n).to(spec.device))
        self.blocks = {"act": self.dice, "subset": self.critics.drawn}  # what is drawn ahead is saved

    def act(self, obs, carry, *, explore):
        logits = self.critics.online(self.inputs(obs)).mean(1) / self.genes["heat"][:, None, None]
        if explore:  # at random while warming up
            logits = logits.masked_fill(self.cold(logits), 0) + self.dice.next()
        return {"action": logits.argmax(-1)}, carry

    def update(self, batch, genes):
        heat, q = genes["heat"][:, None], self.critics.next_values(self.inputs(batch["next_obs"]))
        value = heat * (self.critics.bootstrap(q) / heat[..., None]).logsumexp(-1)  # [M, B]
        y = self.reward(batch) + batch["decay"] * value
        loss, error, _ = self.critics.fit(self.inputs(batch["obs"]), y, batch, genes, scale=0.5, action=batch["action"])
        self.critics.follow(genes["tau"], batch.get("active"))
        return {"critic": loss, "error": error}


if __name__ == "__main__":  # this file is imported again, by its name
    words = "cartpole", "algo=10_own_replay_algorithm:SoftQ", "algo.heat=[0.1,1]", "train.members=4", "stop.steps=30000"
    for row in podium.train(*words, *sys.argv[1:], out="runs/own_replay_algorithm", fresh=True).top:
        print(f"{row['rank']}. member {row['id']}: {row['fitness']:.1f} at heat {row['genes']['heat']:.2g}")
