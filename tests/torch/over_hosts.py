# SPDX-License-Identifier: Apache-2.0
"""One rank of an example of client/examples/torch, as it is; prints what the rank has ended with.

    over_hosts.py FOLDER EXAMPLE [ARGUMENT of the example]...

FOLDER takes a file of each rank's parameters, rankN.pt.
"""
import json
import pathlib
import runpy
import sys

import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "client/examples/torch"
TAG = "RESULT "


def main(folder, example, *arguments):
    sys.path.insert(0, str(EXAMPLES))
    import progress
    begun, models = progress.begin, []

    def begin(ddp):
        wrap, rank, world = begun(ddp)

        def wrapped(module, **options):
            models.append((rank, world, wrap(module, **options)))
            return models[-1][2]
        return wrapped, rank, world

    progress.begin = begin
    sys.argv = [example, *arguments]
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    (rank, world, model), = models
    torch.save([param.detach() for param in model.module.parameters()], f"{folder}/rank{rank}.pt")
    line = {"rank": rank, "world": world}
    sys.stdout.write(TAG + json.dumps(line) + "\n")     # at once: ranks of one agent write to one pipe
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
