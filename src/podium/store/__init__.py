"""The run folder: checkpoints, snapshots, ledger and log. The only writer of a run's files."""
