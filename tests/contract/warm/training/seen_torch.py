# SPDX-License-Identifier: Apache-2.0
"""What a process can see of its torch, item by item. Imports torch only where it was imported before."""

import os
import sys

if "torch" in sys.modules:
    import torch
    import torch.multiprocessing
    from torch import distributed
    from torch.distributed.elastic.multiprocessing.errors import record  # noqa: F401
    from torch.utils.data import DataLoader, Dataset

    class Processes(Dataset):
        """Each item says what the process is that makes it."""

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return {"rank": int(os.environ["RANK"]), "index": index, "threads": torch.get_num_threads()}


def torch_state():
    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "parallel": torch.__config__.parallel_info(),
        "defaults": [str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.get_float32_matmul_precision()],
        "deterministic": [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark],
        "cuda": [torch.cuda.is_initialized(), torch.cuda.is_available(), torch.cuda.device_count()],
        "sharing": torch.multiprocessing.get_sharing_strategy(),
        "distributed": [distributed.is_initialized(), distributed.is_torchelastic_launched()],
    }


def torch_chance():
    """Seeds that nobody has set: torch's own is always the same, until it is asked for another."""
    return {"default": torch.initial_seed(), "drawn": torch.rand(1).item(), "asked": torch.seed()}


def torch_seeded():
    torch.manual_seed(7)
    return [torch.rand(3).tolist(), torch.randperm(5).tolist()]


def loaders():
    """Items that come from the processes of a DataLoader."""
    made = {how: DataLoader(Processes(), num_workers=1, multiprocessing_context=how) for how in (None, "forkserver")}
    return {
        str(how): [{name: value.tolist() for name, value in item.items()} for item in loader]
        for how, loader in made.items()
    }


def all_reduced():
    distributed.init_process_group("gloo")
    ones = torch.ones(1)
    distributed.all_reduce(ones)
    said = [ones.item(), distributed.get_rank(), distributed.get_world_size()]
    distributed.destroy_process_group()
    return said


ITEMS = (torch_state, torch_chance, torch_seeded, all_reduced)
