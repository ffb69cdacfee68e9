# SPDX-License-Identifier: Apache-2.0
"""Mistakes of training scripts. Everything else is an exception of the package gradsync."""
from __future__ import annotations

from ..errors import (DeadlockError, GradsyncError, MemberLostError, Result, StateError, UnsupportedError,
                      VoidStep)


class MarkedTwiceError(StateError, RuntimeError):
    """A parameter got a gradient again after it had been given to gradsync in the same step."""


class UnfinishedStepError(StateError, RuntimeError):
    """A forward pass began, but parameters of the step before it got no gradient."""


class ModelChangedError(GradsyncError, RuntimeError):
    """Parameters or buffers were added to the model, or replaced, after it was wrapped."""

    result = Result.STATE


class ParametersDifferError(StateError, RuntimeError):
    """The ranks train different models: parameters that are not the same on all of them, or gradients that
    an optimiser is about to apply and that were not averaged."""


class GradientKindError(UnsupportedError, TypeError):
    """A gradient that cannot be averaged: sparse, or of a type that gradsync does not know."""


def advise(error: DeadlockError | MemberLostError, here: str) -> None:
    """Adds a note on how a training script comes to that. `here`: the point in the script at which this
    rank is."""
    error.add_note(f"This rank is at {here}. Each rank calls the wrapped module and backward() as often as "
                   "the others: a batch is skipped on all ranks or on none (decide with "
                   "model.job.allreduce(flag, gradsync.DType.F32, gradsync.Reduce.MAX)), and a rank that "
                   "evaluates alone calls the module inside, model.module")


def advise_state(error: VoidStep) -> None:
    """Adds a note for a training script without a State, if the job goes on."""
    if "the job is over" not in str(error):
        error.add_note("The lost rank's place is kept for a new process. This script has no gradsync.State, "
                       "which brings that one the model and computes the step again: give it one "
                       "(docs/FROM_DDP.md, \"A rank that is lost\"), or start it without --restart and "
                       "GRADSYNC_REJOIN_GRACE")


class NoStateError(GradsyncError, RuntimeError):
    """This process has taken the place of a lost member, and has not got the state of the others."""

    result = Result.STATE
