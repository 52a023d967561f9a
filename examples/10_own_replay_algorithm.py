"""An algorithm of your own with a replay: soft Q-learning (Haarnoja et al. 2017), M members at once."""

import sys

import podium
from podium.algos.off_policy import OffPolicy, OffPolicySettings
from podium.core.hyper import GeneValue, gene
from podium.core.streams import Block, gumbel
from podium.nets.critics import Critics


class SoftQ(OffPolicy):
    class Settings(OffPolicySettings):
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
        noisy = logits.masked_fill(self.cold(logits), 0) + self.dice.next() if explore else logits  # random while cold
        return {"action": noisy.argmax(-1)}, carry

    def update(self, batch, genes):
        heat, q = genes["heat"][:, None], self.critics.next_values(self.inputs(batch["next_obs"]))
        y = self.reward(batch) + batch["decay"] * heat * (self.critics.bootstrap(q) / heat[..., None]).logsumexp(-1)
        loss, error, _ = self.critics.fit(self.inputs(batch["obs"]), y, batch, genes, scale=0.5, action=batch["action"])
        self.critics.follow(genes["tau"], batch.get("active"))
        return {"critic": loss, "error": error}


if __name__ == "__main__":  # this file is imported again, by its name
    words = "cartpole", "algo=10_own_replay_algorithm:SoftQ", "algo.heat=[0.1,1]", "train.members=4", "stop.steps=20000"
    plan = "algo.lr=1e-3", "algo.discount=0.98", "algo.tau=0.02", "algo.batch=64", "algo.updates=0.25", "critic.count=1"
    result = podium.train(*words, *plan, *sys.argv[1:], out="runs/own_replay_algorithm", fresh=True)
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    for row in result.top:
        print(f"{row['rank']}. member {row['id']}: {row['fitness']:.1f} at heat {row['genes']['heat']:.2g}")
