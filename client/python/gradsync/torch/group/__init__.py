# SPDX-License-Identifier: Apache-2.0
"""The backend "gradsync" of torch.distributed: dist.init_process_group("gradsync").

opening.py makes groups, process_group.py has their operations, work.py what an operation returns, tensors.py
the memory of tensors. ../../_backend.py makes the backend known to torch.
"""
from .opening import create
from .process_group import ProcessGroup

__all__ = ["ProcessGroup", "create"]
