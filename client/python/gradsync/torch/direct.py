# SPDX-License-Identifier: Apache-2.0
"""Weights of linear layers whose gradients autograd makes right where gradsync has them.

Autograd makes each gradient in memory of its own, and the reducer's hook copies it into shared memory. For
large weights that copy is most of what averaging costs a rank. So the large nn.Linear layers of a model have
a forward() of ours from a forward pass to the end of its step. It computes what theirs does with the same
operations, so results are equal bit for bit, and its backward pass makes the weight's gradient in the shared
memory. Where something is out of the ordinary (autocast, torch.compile, functorch, hooks of the weight,
gradients that are added up, torch.autograd.grad()), the layer works as without this module.
"""
from __future__ import annotations

import copy
import threading
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional

#: Weights with fewer bytes are copied in less time than a node in Python takes.
LEAST_BYTES = 256 << 10


#: Held by a thread that takes a memory: two threads may want the same one.
_making = threading.Lock()


class Home:
    """The place where gradsync has the gradient of a parameter."""

    __slots__ = ("param", "node", "view", "address", "maker", "placed")

    def __init__(self, param: torch.Tensor, node: Any) -> None:
        self.param, self.node = param, node
        #: none without a plan, and for a gradient that is converted on its way
        self.view: torch.Tensor | None = None
        self.address = 0
        #: thread and backward pass that have made a gradient there which is not in .grad yet
        self.maker: tuple[int, int] | None = None
        #: a step runs; a script may have kept a layer's forward() of ours for longer
        self.placed = False

    def give(self) -> torch.Tensor | None:
        """The memory, if the gradient that is computed now may be made in it. Within backward passes only."""
        view, param = self.view, self.param
        if view is None or self.maker is not None or param.grad is not None or torch.is_grad_enabled():
            return None
        if view.data_ptr() != self.address or param._backward_hooks or not _is_accumulated(self.node):
            return None
        with _making:
            if self.maker is not None:
                return None
            self.maker = threading.get_ident(), torch._C._current_graph_task_id()
        return view.detach()

    def settle(self) -> bool:
        """Called when a pass has added to .grad. False if the memory has a gradient that another pass has
        still to add: a pass of another thread, or one within which this pass runs."""
        if self.maker is None:
            return True
        if self.maker[1] != torch._C._current_graph_task_id():
            return False
        self.maker = None
        return True

    def forget_failed(self) -> None:
        """Called between the backward passes of this thread: a pass that has left a gradient in the memory
        has failed."""
        if self.maker is not None and self.maker[0] == threading.get_ident():
            self.maker = None


def _is_accumulated(node: Any) -> bool:
    """Whether this backward pass adds to .grad: in torch.autograd.grad() gradients belong to the caller."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return False


class _Linear(torch.autograd.Function):
    """Takes bias (out) or None, x (rows, in), and weight (in, out), which is a transposed view. All gradients
    are those of functional.linear(). That has the same operands and saves the same tensors, in this order: a
    checkpoint may be computed again when the layer has its own forward(), and compares the tensors that were
    saved."""

    @staticmethod
    def forward(ctx: Any, bias: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor,
                home: Home) -> torch.Tensor:
        ctx.home, ctx.weight_first = home, bias is None
        ctx.set_materialize_grads(False)
        kept = (x, weight) if ctx.needs_input_grad[1] else (x,)
        ctx.save_for_backward(*(reversed(kept) if ctx.weight_first else kept))
        return x.mm(weight) if bias is None else torch.addmm(bias, x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        grad, = grads
        if grad is None:
            return None, None, None, None
        kept = ctx.saved_tensors[::-1] if ctx.weight_first else ctx.saved_tensors
        of_x = grad.mm(kept[1].t()) if ctx.needs_input_grad[1] else None
        of_weight = None
        if ctx.needs_input_grad[2]:
            home = ctx.home.give()
            of_weight = (grad.t().mm(kept[0]) if home is None else torch.mm(grad.t(), kept[0], out=home)).t()
        of_bias = grad.sum(0) if ctx.needs_input_grad[0] else None
        return of_bias, of_x, of_weight, None


class _Forward:
    """The forward() of a linear layer."""

    __slots__ = ("module", "home")

    def __init__(self, module: nn.Linear, home: Home) -> None:
        self.module, self.home = module, home

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        module, home = self.module, self.home
        weight, bias = module.weight, module.bias
        if not home.placed or weight is not home.param or not _is_ordinary(input, weight):
            return functional.linear(input, weight, bias)
        rows = input if input.dim() == 2 else input.view(-1, weight.shape[1])
        out: torch.Tensor = _Linear.apply(bias, rows, weight.t(), home)  # type: ignore[no-untyped-call]
        return out if rows is input else out.view(*input.shape[:-1], weight.shape[0])

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the layer is a layer like any other."""
        copied = copy.deepcopy(self.module, memo)
        return types.MethodType(type(copied).forward, copied)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.module, "forward")


def _is_ordinary(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return (not torch.compiler.is_compiling() and torch.is_grad_enabled() and weight.requires_grad
            and type(x) in (torch.Tensor, nn.Parameter) and x.dtype is weight.dtype and x.is_contiguous()
            and x.dim() in (2, 3) and x.shape[-1] == weight.shape[1] and x.numel() > 0
            and not torch.is_autocast_enabled("cpu")
            and not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0)


class Linears:
    """The large linear layers of a model."""

    def __init__(self, model: nn.Module, homes: Iterable[Home]) -> None:
        large = {id(home.param): home for home in homes
                 if home.param.nbytes >= LEAST_BYTES and home.param.is_contiguous()}
        self._forwards = [_Forward(module, home) for module in model.modules()
                          if type(module) is nn.Linear
                          and (home := large.get(id(module._parameters.get("weight")))) is not None]
        if any(_is_compiled(module) for module in model.modules()):
            self._forwards = []
        self._homes = list(large.values())
        self._placed = False

    def place(self) -> None:
        """Called before a forward pass: gives each layer its forward() of ours. A layer whose forward() was
        replaced by other code keeps that."""
        if torch._C._current_graph_task_id() < 0:
            for home in self._homes:
                home.forget_failed()
        if self._placed:
            return
        self._placed = True
        for forward in self._forwards:
            forward.home.placed = True
            own = forward.module.__dict__
            if "forward" not in own or _is_usual(own["forward"], forward.module):
                own["forward"] = forward

    def remove(self) -> None:
        """Gives the layers their own forward() back."""
        if not self._placed:
            return
        self._placed = False
        for forward in self._forwards:
            forward.home.placed = False
            if forward.module.__dict__.get("forward") is forward:
                del forward.module.__dict__["forward"]


def _is_usual(forward: object, module: nn.Module) -> bool:
    """Whether this is the method of the class, which a copy has where its original had a forward() of
    ours."""
    return (isinstance(forward, types.MethodType) and forward.__func__ is nn.Linear.forward
            and forward.__self__ is module)


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
