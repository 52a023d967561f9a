"""What a run shows: the live console, tables and TensorBoard events."""
