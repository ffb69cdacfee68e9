# SPDX-License-Identifier: Apache-2.0
"""The layer check on this tree, and on trees with one bad edge each, which it must find."""
import pytest

import calls
import layers
from tree import TREE, write

GOOD = {
    "proto/frame.h": "",
    "proto/gradsync.proto": "",
    "include/gradsync/gradsync.h": "",
    "daemon/base/loop.h": "",
    "daemon/base/loop.c": '#include <event2/event.h>\n#include "base/loop.h"\n',
    "daemon/backend/backend.h": '#include "base/loop.h"\n#include "proto/frame.h"\n',
    "daemon/backend/host/pool.c": '#include <pthread.h>\n#include "backend/backend.h"\n',
    "daemon/engine/engine.h": "",
    "daemon/rendezvous/machine/coordinator.h": "",
    "daemon/rendezvous/machine/message.h": "",
    "daemon/rendezvous/hub.h": '#include "rendezvous/machine/message.h"\n',
    "daemon/rendezvous/wire/post.h": '#include "rendezvous/hub.h"\n#include "rendezvous/machine/message.h"\n',
    "daemon/rendezvous/service/stations.h": '#include "rendezvous/wire/post.h"\n'
                                            '#include "rendezvous/hub.h"\n',
    "daemon/job/job.h": '#include "backend/backend.h"\n#include "engine/engine.h"\n'
                          '#include "rendezvous/hub.h"\n',
    "daemon/job/data.h": '#include "job/plan/tasks.h"\n',
    "daemon/job/plan/tasks.h": "",
    "daemon/job/plan/plan.h": '#include "job/data.h"\n#include "job/plan/tasks.h"\n/* WIRE__CODE__QUOTA */\n',
    "daemon/job/op/operation.c": '#include "job/plan/plan.h"\n',
    "daemon/report/report.h": '#include "job/job.h"\n#include "gradsync.pb-c.h"\n',
    "daemon/session/session.h": '#include "job/job.h"\n#include "report/report.h"\n'
                                '#include "gradsync.pb-c.h"\n',
    "daemon/socket/listener.h": '#include "session/session.h"\n',
    "daemon/core/main.c": '#include "socket/listener.h"\n#include "backend/backend.h"\n',
    "client/lib/plan/plan.h": "",
    "client/lib/handle.h": '#include "proto/frame.h"\n#include "gradsync/gradsync.h"\n',
    "client/cli/main.c": '#include <gradsync/gradsync.h>\n#include "client/cli/cmd/cmd.h"\n',
    "client/cli/commands.h": "",
    "client/cli/base/cli.h": "",
    "client/cli/view/text.h": '#include "client/cli/base/cli.h"\n',
    "client/cli/cmd/cmd.h": '#include "client/cli/view/text.h"\n',
}


def tree_of(tmp_path, changes):
    return write(tmp_path, {**GOOD, **changes})


def test_this_tree_keeps_its_layers():
    found, seen = layers.violations(TREE)
    assert seen > 50
    assert not found, "\n".join(f"{user}:{line}: {name}: {why}" for user, line, name, why in found)


def test_folders_of_the_job_call_only_those_below():
    assert layers.job_calls(calls.read(TREE).edges) == []


@pytest.mark.parametrize("user, used, good", [
    ("daemon/job/plan/step", "daemon/job/machine/machine", True),
    ("daemon/job/plan/step", "daemon/job/plan/plan", True),
    ("daemon/job/job", "daemon/job/plan/plan", True),
    ("daemon/session/events", "daemon/job/plan/plan", True),
    ("daemon/job/plan/step", "daemon/base/log", True),
    ("daemon/job/plan/step", "daemon/job/job", False),
    ("daemon/job/keep/state", "daemon/job/plan/description", False),
])
def test_calls_between_folders_of_the_job(user, used, good):
    assert layers.job_calls({user: {used: {"f"}}}) == ([] if good else [(user, used)])


def test_a_good_tree_passes(tmp_path):
    assert layers.violations(tree_of(tmp_path, {}))[0] == []


@pytest.mark.parametrize("name, text, reason", [
    ("daemon/base/log.c", '#include "job/job.h"\n', "daemon/base must not use daemon/job"),
    ("daemon/backend/host/pool.h", '#include "session/session.h"\n',
     "daemon/backend must not use daemon/session"),
    ("daemon/kernel/kernel.h", '#include "backend/backend.h"\n', "daemon/kernel must not use daemon/backend"),
    ("daemon/rendezvous/machine/coordinator.c", '#include "session/session.h"\n',
     "daemon/rendezvous must not use daemon/session"),
    ("daemon/rendezvous/machine/coordinator.c", '#include "backend/backend.h"\n',
     "daemon/rendezvous must not use daemon/backend"),
    ("daemon/job/job.c", '#include "rendezvous/machine/coordinator.h"\n', "through rendezvous/hub.h alone"),
    ("daemon/rendezvous/machine/node.c", '#include "rendezvous/hub.h"\n',
     "daemon/rendezvous/machine must not use daemon/rendezvous/hub.h"),
    ("daemon/rendezvous/machine/node.c", '#include "rendezvous/wire/post.h"\n',
     "daemon/rendezvous/machine must not use daemon/rendezvous/wire/post.h"),
    ("daemon/rendezvous/wire/post.c", '#include "rendezvous/service/stations.h"\n',
     "daemon/rendezvous/wire must not use daemon/rendezvous/service/stations.h"),
    ("daemon/rendezvous/extra/extra.c", '#include "rendezvous/hub.h"\n', "not a room"),
    ("daemon/job/job.c", '#include "../session/session.h"\n', "daemon/job must not use daemon/session"),
    ("daemon/engine/engine.h", '#include "backend/backend.h"\n',
     "daemon/engine must not use daemon/backend"),
    ("daemon/job/job.c", '#include "report/report.h"\n', "daemon/job must not use daemon/report"),
    ("daemon/report/status.c", '#include "session/session.h"\n',
     "daemon/report must not use daemon/session"),
    ("daemon/report/report.h", '#include "engine/engine.h"\n', "daemon/report must not use daemon/engine"),
    ("daemon/socket/listener.c", '#include "report/report.h"\n', "daemon/socket must not use daemon/report"),
    ("daemon/session/session.c", '#include "engine/engine.h"\n',
     "daemon/session must not use daemon/engine"),
    ("daemon/job/plan/step.c", '#include "job/job.h"\n',
     "daemon/job/plan must not use daemon/job/job.h"),
    ("daemon/job/keep/state.c", '#include "job/plan/plan.h"\n',
     "daemon/job/keep must not use daemon/job/plan/plan.h"),
    ("daemon/job/extra/extra.c", '#include "job/data.h"\n', "not a folder"),
    ("daemon/job/plan/step.c", "int f(const Wire__Ready *ready);\n", "messages of the protocol"),
    ("daemon/session/session.c", '  #  include "backend/backend.h"\n',
     "daemon/session must not use daemon/backend"),
    ("daemon/session/session.c", '#include "socket/listener.h"\n',
     "daemon/session must not use daemon/socket"),
    ("daemon/socket/listener.c", '#include "daemon/job/job.h"\n', "daemon/socket must not use daemon/job"),
    ("daemon/session/session.c", '#include "core/main.h"\n', "no such file"),
    ("daemon/extra/extra.c", '#include "base/loop.h"\n', "not a layer"),
    ("daemon/socket/listener.c", "#include <event2/event.h>\n", "libevent"),
    ("daemon/job/job.c", "#include <pthread.h>\n", "threads"),
    ("daemon/job/token.c", "#include <openssl/hmac.h>\n", "digests"),
    ("daemon/base/sha256.c", "#include <openssl/ssl.h>\n", "TLS"),
    ("daemon/job/job.c", '#include "client/lib/handle.h"\n', "daemon/ must not use client/"),
    ("client/lib/handle.c", '#include "daemon/base/loop.h"\n', "client/ must not use daemon/"),
    ("client/lib/wire/low.c", '#include "client/lib/plan/plan.h"\n',
     "client/lib/wire must not use client/lib/plan"),
    ("client/cli/status.c", '#include "base/loop.h"\n', "client/ must not use daemon/"),
    ("client/cli/view/text.c", '#include "client/cli/cmd/cmd.h"\n',
     "client/cli/view must not use client/cli/cmd"),
    ("client/cli/cmd/status.c", '#include "client/cli/commands.h"\n',
     "client/cli/cmd must not use client/cli/commands.h"),
    ("client/cli/extra/extra.c", '#include "client/cli/base/cli.h"\n', "not a layer"),
    ("proto/frame.c", '#include "base/loop.h"\n', "proto/ must not use daemon/"),
])
def test_a_bad_edge_is_found(tmp_path, name, text, reason):
    found = layers.violations(tree_of(tmp_path, {name: text}))[0]
    assert len(found) == 1, found
    assert str(found[0][0]) == name and reason in found[0][3]
