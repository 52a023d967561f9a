"""The toy of the PBT paper (Jaderberg et al. 2017, Fig. 2): no fixed h of two workers solves it, PBT does.

Only to exploit makes twins of the two; only to explore gets there, too, but mostly later: of 1000 seeds PBT is there
first with 653, exploring alone with 282; the medians are 97 and 107 steps. The seed that is drawn was chosen for being
near to both medians; a single seed proves nothing.
"""

import sys

import matplotlib
import torch

from podium.core.hyper import Gene
from podium.evolve.explore import Searched, Space, perturb
from podium.evolve.select import truncation

SEED, STEPS, READY, RATE = 64, 200, 20, 0.02
FACTORS = 0.75, 1.5  # h goes down by a quarter of its range or up by a half: 995 of 1000 seeds end above 1.19
SPACE = Space([Searched(name, Gene(0, 1, "linear"), 0.0, 1.0) for name in ("h0", "h1")])
PANELS = {"PBT": (1, 1), "explore only": (0, 1), "exploit only": (1, 0), "grid search": (0, 0)}  # exploit, explore


def quality(theta):
    """What counts, 1.2 - Σ θ². `[..., 2]` -> `[...]`"""
    return 1.2 - theta.square().sum(-1)


def train(exploit, explore, seed=SEED):
    """Two workers ascend 1.2 - Σ h θ², each with its own h; the way they take, `[STEPS + 1, 2, 2]`."""
    rng = torch.Generator().manual_seed(seed)
    theta, h = torch.full((2, 2), 0.9, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    path = [theta]
    for step in range(1, STEPS + 1):
        theta = theta - RATE * 2 * h * theta
        if step % READY == 0 and exploit:  # they begin as mirror images: only a rule for ties sets one above the other
            parents = truncation(quality(theta), rng, fraction=0.5)
            theta, h = theta[parents], h[parents]
        if step % READY == 0 and explore:
            h = perturb(h, SPACE, rng, FACTORS)
        path.append(theta)
    return torch.stack(path)


def draw(ax, name, path):
    """A panel: the ways of both workers over the contours of what counts."""
    axis, best = torch.linspace(-0.08, 1.0, 100), quality(path).amax(1)
    ground = quality(torch.cartesian_prod(axis, axis)).view(100, 100)
    ax.contourf(axis, axis, ground, levels=12, cmap="Blues", vmin=-1, vmax=3)
    ax.clabel(ax.contour(axis, axis, ground, levels=[0, 0.4, 0.8, 1.1], colors="white", linewidths=1), colors="black")
    ax.plot(0, 0, "*", color="gold", ms=20, mec="black", zorder=1.9)
    for worker, (colour, marker) in enumerate((("black", "o"), ("crimson", "D"))):
        x, y = path[:, worker].T
        ax.plot(x, y, color=colour, lw=0.7, alpha=0.6)  # a straight line without dots: it copied the other
        ax.plot(x, y, marker, color=colour, ms=3, mew=0, label=f"worker {worker}")
        ax.plot(x[-1], y[-1], marker, color=colour, ms=8, mec="white")
    solved = (best >= 1.19).nonzero()
    when = f"above 1.19 after {int(solved[0])} steps" if len(solved) else "never above 1.19"
    ax.set_title(f"{name}: best $Q$ = {best[-1]:.4f}", weight="bold", fontsize=13)
    ax.set(xlabel=f"$\\theta_0$\n{when}", aspect="equal")


if __name__ == "__main__":
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 4.9), sharey=True, layout="constrained")
    for ax, (name, way) in zip(axes, PANELS.items(), strict=True):
        path = train(*way)
        draw(ax, name, path)
        print(f"{name}: {quality(path[-1]).max():.4f}")
    axes[0].set_ylabel("$\\theta_1$")
    axes[0].legend(loc="lower right", markerscale=2)
    figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "pbt_toy.png", dpi=110, format="png")
