"""Environments: `make` finds one by name; `base.VecEnv` is what each of them is."""
