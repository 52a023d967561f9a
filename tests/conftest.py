import os

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


@pytest.fixture(autouse=True, scope="session")
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is remembered of a user's runs stays with the tests, those in processes of their own included."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
