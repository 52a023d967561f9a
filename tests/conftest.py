import pytest
import torch
from hypothesis import settings

# The machine decides how long an example takes; a test has to find the same things every time.
settings.register_profile("podium", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("podium")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small tensors gain nothing from a second thread, and the tests share the machine."""
    torch.set_num_threads(1)
