"""What other libraries call the settings of Podium, so that a name a user knows from there is understood.

An entry is a tuple of settings, of which the first that the run has takes the same value; or a sentence, where the
number means something else here.
"""

from __future__ import annotations

Entry = tuple[str, ...] | str

_ROLLOUT = "a rollout is algo.steps x env.num steps in Podium; set these two"
_BATCHES = "Podium sets the size of a minibatch, algo.batch: algo.steps x env.num divided by the number of minibatches"
_WORKERS = "Podium steps envs in env.workers processes with env.source=workers, and spreads members over fleet.pods"
_DEVICE = "write train.device=cuda; with fleet=ray, fleet.gpus is what each pod asks for"
_UPDATES = "Podium counts updates per stored step: set algo.updates (gradient_steps / (train_freq x n_envs))"
_TARGETS = "Podium calls it algo.target_every and counts updates, not steps"
_EVERY = "Podium calls it eval.every and counts the steps of a member"
_INTERVAL = "Podium calls it evolve.interval and counts the steps of a member between two of its evaluations"
_RANGES = 'name the ranges to search, such as "algo.lr=[1e-5,1e-2]", or the genes: evolve.genes=[lr,entropy]'
_NET = "write net.hidden=[64,64] and net.activation=tanh (or relu, elu)"
_ACTIVATION = "Podium calls it net.activation; it is tanh, relu or elu"
_STRATEGY = "the strategy is a word: podium evolve ENV ALGO truncation (or tournament, nsga2, ...: podium presets)"
_FITNESS = (
    "fitness is the mean return of an evaluation, and the highest is best; for others: evolve.objectives and nsga2"
)
_NONE = "Podium does not have it; leave it out"

SB3: dict[str, Entry] = {
    "learning_rate": ("algo.lr",),
    "gamma": ("algo.discount",),
    "n_steps": ("algo.n_step", "algo.steps"),
    "batch_size": ("algo.batch",),
    "n_epochs": ("algo.epochs",),
    "gae_lambda": ("algo.lam",),
    "ent_coef": ("algo.entropy", "algo.temperature"),
    "vf_coef": ("algo.critic",),
    "clip_range": ("algo.clip",),
    "clip_range_vf": "write algo.clip_value=true: values are clipped by algo.clip, too",
    "max_grad_norm": ("algo.max_norm",),
    "normalize_advantage": ("algo.normalise_advantage",),
    "norm_obs": ("env.normalise_obs",),
    "norm_reward": ("env.normalise_reward",),
    "normalize": "write env.normalise_obs=true and env.normalise_reward=true",
    "total_timesteps": ("stop.steps",),
    "n_timesteps": ("stop.steps",),
    "n_envs": ("env.num",),
    "buffer_size": ("replay.capacity",),
    "learning_starts": ("algo.warmup",),
    "tau": ("algo.tau",),
    "train_freq": ("algo.steps",),
    "gradient_steps": _UPDATES,
    "target_update_interval": _TARGETS,
    "exploration_fraction": "Podium calls it algo.epsilon_steps and counts steps: exploration_fraction x stop.steps",
    "exploration_initial_eps": ("algo.epsilon",),
    "exploration_final_eps": ("algo.epsilon_end",),
    "policy_delay": ("algo.delay",),
    "target_policy_noise": ("algo.target_noise",),
    "target_noise_clip": ("algo.target_clip",),
    "action_noise": "write algo.noise=0.1, and algo.process=ou where it should linger",
    "policy_kwargs": _NET,
    "net_arch": ("net.hidden",),
    "activation_fn": _ACTIVATION,
    "log_std_init": ("algo.log_std",),
    "use_sde": _NONE,
    "n_quantiles": ("algo.atoms",),
    "n_eval_episodes": ("eval.episodes",),
    "eval_freq": _EVERY,
    "save_freq": ("train.checkpoint",),
    "n_stack": ("env.frame_stack",),
    "policy": "the network follows from the env; net.hidden and net.conv shape it",
    "verbose": "pass -q (in Python quiet=True) to show no progress",
    "tensorboard_log": "leave it out: every run writes events for TensorBoard into its folder",
}
RLLIB: dict[str, Entry] = {
    "lambda": ("algo.lam",),
    "lambda_": ("algo.lam",),
    "entropy_coeff": ("algo.entropy", "algo.temperature"),
    "vf_loss_coeff": ("algo.critic",),
    "clip_param": ("algo.clip",),
    "vf_clip_param": "write algo.clip_value=true: values are clipped by algo.clip, too",
    "kl_target": ("algo.target_kl",),
    "grad_clip": ("algo.max_norm",),
    "train_batch_size": _ROLLOUT,
    "train_batch_size_per_learner": _ROLLOUT,
    "minibatch_size": ("algo.batch",),
    "sgd_minibatch_size": ("algo.batch",),
    "num_sgd_iter": ("algo.epochs",),
    "num_epochs": ("algo.epochs",),
    "rollout_fragment_length": ("algo.steps",),
    "num_env_runners": _WORKERS,
    "num_workers": _WORKERS,
    "num_rollout_workers": _WORKERS,
    "num_envs_per_env_runner": ("env.num",),
    "num_envs_per_worker": ("env.num",),
    "num_gpus": _DEVICE,
    "num_gpus_per_learner": _DEVICE,
    "framework": "Podium runs on PyTorch only; leave it out",
    "evaluation_interval": _EVERY,
    "evaluation_duration": ("eval.episodes",),
    "fcnet_hiddens": ("net.hidden",),
    "fcnet_activation": ("net.activation",),
    "conv_filters": ("net.conv",),
    "env_config": ("env.kwargs",),
    "initial_alpha": ("algo.temperature",),
    "num_steps_sampled_before_learning_starts": ("algo.warmup",),
    "target_network_update_freq": _TARGETS,
    "num_atoms": ("algo.atoms",),
    "v_min": ("algo.low",),
    "v_max": ("algo.high",),
    "double_q": ("algo.double",),
    "training_intensity": ("replay.ratio",),
}
TUNE: dict[str, Entry] = {
    "pbt": "population-based training is podium evolve ENV ALGO truncation",
    "num_samples": ("evolve.members", "train.members"),
    "perturbation_interval": _INTERVAL,
    "hyperparam_mutations": _RANGES,
    "hyperparam_bounds": _RANGES,
    "quantile_fraction": ("evolve.fraction",),
    "resample_probability": ("evolve.resample",),
    "perturbation_factors": ("evolve.factors",),
    "burn_in_period": ("evolve.burn_in",),
    "time_total_s": ("stop.seconds",),
    "time_budget_s": ("stop.seconds",),
    "timesteps_total": ("stop.steps",),
    "num_env_steps_sampled_lifetime": ("stop.steps",),
    "training_iteration": "Podium counts the steps of a member: set stop.steps, or with podium evolve stop.generations",
    "episode_reward_mean": ("stop.fitness",),
    "episode_return_mean": ("stop.fitness",),
    "max_concurrent_trials": "all members train at once; fleet.pods says over how many processes they are spread",
    "checkpoint_frequency": "Podium calls it train.checkpoint and counts the steps of a member",
    "metric": _FITNESS,
    "mode": _FITNESS,
    "scheduler": _STRATEGY,
    "search_alg": _STRATEGY,
}
CLEANRL: dict[str, Entry] = {
    "env_id": ("env.id",),
    "num_envs": ("env.num",),
    "num_steps": ("algo.steps",),
    "update_epochs": ("algo.epochs",),
    "num_minibatches": _BATCHES,
    "anneal_lr": "write algo.anneal=[lr]",
    "norm_adv": ("algo.normalise_advantage",),
    "clip_coef": ("algo.clip",),
    "clip_vloss": ("algo.clip_value",),
    "q_lr": ("algo.lr",),
    "start_e": ("algo.epsilon",),
    "end_e": ("algo.epsilon_end",),
    "train_frequency": ("algo.steps",),
    "target_network_frequency": _TARGETS,
    "exploration_noise": ("algo.noise",),
    "policy_noise": ("algo.target_noise",),
    "noise_clip": ("algo.target_clip",),
    "policy_frequency": ("algo.delay",),
    "autotune": ("algo.learn_temperature",),
    "cuda": _DEVICE,
    "capture_video": "draw an episode afterwards: podium play RUN",
    "exp_name": "name the run's folder: -o DIR (in Python out=DIR)",
}
AGILERL: dict[str, Entry] = {
    "POP_SIZE": ("evolve.members", "train.members"),
    "EVO_STEPS": ("evolve.interval",),
    "TARGET_SCORE": ("stop.fitness",),
    "MAX_STEPS": ("stop.steps",),
    "MEMORY_SIZE": ("replay.capacity",),
    "LEARN_STEP": ("algo.steps",),
    "LEARNING_DELAY": ("algo.warmup",),
    "EVAL_LOOP": ("eval.episodes",),
    "EVAL_STEPS": ("eval.max_steps",),
    "POLICY_FREQ": ("algo.delay",),
    "TOURN_SIZE": ("evolve.rivals",),
    "EPS_START": ("algo.epsilon",),
    "EPS_END": ("algo.epsilon_end",),
    "LR_ACTOR": ("algo.policy_lr", "algo.lr"),
    "LR_CRITIC": ("algo.lr",),
    "N_STEP": ("algo.n_step",),
    "PER": ("replay.prioritised",),
    "DOUBLE": ("algo.double",),
    "RL_HP_MUT": "genes move by evolve.factors at every exchange; evolve.resample is the chance of a new value",
    "ARCH_MUT": "Podium searches genes, not shapes; kinds of networks can compete as evolve.entrants",
    "ELITISM": _NONE,
}
LIBRARIES: dict[str, dict[str, Entry]] = {
    "Stable-Baselines3": SB3,
    "RLlib": RLLIB,
    "Tune": TUNE,
    "CleanRL": CLEANRL,
    "AgileRL": AGILERL,
}
"""A name that several libraries have is listed with the first of them."""


def folded(name: str) -> str:
    """A name as it is looked up: `--Total-Timesteps` is `total_timesteps`."""
    return name.lstrip("-").replace("-", "_").casefold()


NAMES = {name: entry for library in LIBRARIES.values() for name, entry in library.items()}
FOLDED = {folded(name): entry for name, entry in NAMES.items()}
