/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The membership machine of a job: this daemon's node, and the hub at which it meets the job's coordinator.
 * The coordinator of a job of this host is in the same process: each side hears at once what the other one
 * says, and nothing is lost or late. So none of the machine's own times plays a part; only members' waits do.
 * The node of a job of the cluster says everything again in each heartbeat, and has times of its own. Until
 * the cluster has an address for it, it keeps its members and begins then.
 *
 * A call into the machine does nothing to the job: jobs_advance() takes the resulting actions out with
 * machine_next() and carries them out, after each call into the job layer. While its members call, the node
 * asks the coordinator to wait: generations are made when the job settles, or when the coordinator's own time
 * has come.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/account.h"
#include "base/loop.h"
#include "rendezvous/hub.h"
#include "rendezvous/machine/node.h"

struct job;
struct jobs;

struct machine {
        struct node node;
        struct attachment attachment;
        void *memory;            /* of the node, and after it job->local[] */
        struct charge charge;    /* the memory, to the job's uid */
        struct loop_timer *beat; /* fires when the node's time has come; NULL: it has no times of its own */
        uint64_t due;            /* the time for which it is armed */
        bool catching_up;        /* members here have not given all of any step of this generation yet */
};

/* The functions of the attachment are set. `beat` is called with the job when the node's time has come, for
 * machine_tick(). 0, QUOTA with *refusal, or -ENOMEM. */
int machine_init(struct job *job, uint64_t incarnation, loop_timer_fn beat, struct refusal *refusal);
/* Drops the actions that have not been taken out. */
void machine_deinit(struct job *job);

/* Takes out the oldest action that the machine of some job wants done, and delivers messages between nodes
 * and coordinators on the way. False: there is none left. The action is valid until the next call. */
bool machine_next(struct jobs *jobs, struct job **ret_job, const struct action **ret);

/* From the hub. An order of the coordinator is delivered by machine_next(). */
void machine_receive(struct job *job, const struct order *order);
/* MEMBER_LOST with *refusal: an order that no job of this size has sent. Else 0. */
int machine_check_order(const struct job *job, const struct order *order, struct refusal *refusal);
/* The node has another address. It is in no generation yet, and its members ask anew. */
void machine_begin_anew(struct job *job);
/* No coordinator has the job. */
void machine_quit(struct job *job);
/* The communicator of that generation is being built here, with that node. */
bool machine_builds(const struct job *job, const struct generation *comm, uint32_t from);
void machine_tick(struct job *job);

/* The daemon ends, and the node is going to come back with the one that follows: the coordinator hears so. */
void machine_depart(struct job *job);
/* The daemon may go now: no generation may be on its way to the node. */
bool machine_has_departed(const struct job *job);
/* It goes in any case. */
void machine_leave(struct job *job);
/* Makes room for so many members and tracks. The memory that it has for them may move. 0, QUOTA with
 * *refusal, or -ENOMEM. */
int machine_reserve(struct job *job, uint32_t members, uint32_t tracks, struct refusal *refusal);

/* The places of the generation, as the coordinator has said. */
static inline const struct places *machine_places(const struct machine *machine) {
        return &machine->node.places;
}

/* A process that is new in the job (the tag is all 0), or a member that comes back to its place after the
 * coordinator has judged: see machine_restore(). 0, or a code with *refusal. The coordinator may still refuse
 * it: ACTION_REFUSED. */
int machine_join(struct job *job, const struct membership_request *request, const struct tag *tag,
                 struct refusal *refusal);
/* Finds the member among those that the node reports; NULL if it is none of these. */
const struct report_member *machine_member(const struct job *job, uint64_t member);
/* The member is gone, for that cause (WIRE__CAUSE__…). */
void machine_gone(struct job *job, uint64_t member, uint32_t cause);
/* The whole generation ends, and there will be no other. */
void machine_end(struct job *job, uint32_t cause);
/* Asks the coordinator to wait while members of this node say things that belong together; or not to wait any
 * longer. */
void machine_wait(struct job *job, bool wait);

/* Whether some members that come back from a former daemon have not said everything yet. */
bool machine_is_awaiting(const struct job *job);

/* The members here have agreed on that plan; its track comes as an action. Room for it has been reserved. */
void machine_agree(struct job *job, uint32_t ordinal, uint64_t digest, bool voids);
/* As node_explain(). */
void machine_explain(struct job *job, uint32_t ordinal, enum note note, const struct report_note *about);
/* How many plans the members here have agreed on and not let go of, except that one. */
uint32_t machine_plans(const struct job *job, uint32_t ordinal);
/* Lists the ordinals of the plans that members of the generation before have on any node, in no order, and
 * the ordinal of their next plan, as NEWGEN has said. Returns how many there are. */
uint32_t machine_kept(const struct job *job, const uint32_t **ret_list, uint32_t *ret_next);
/* Units of its track that were committed before its first step. */
uint64_t machine_before(const struct job *job, uint32_t ordinal);
/* No member here has the plan any more. */
void machine_forget(struct job *job, uint32_t ordinal);

/* Opens a step or an operation. On several nodes the node will offer so many payloads. False: the generation
 * is over, and the unit begins anew in the next one. */
bool machine_open(struct job *job, uint32_t track, uint64_t payloads);
/* The next payload is complete here. */
void machine_offer(struct job *job, uint32_t track);
/* The number of payloads of the open unit. */
uint64_t machine_payloads(const struct job *job, uint32_t track);
/* The state of the step or operation of that track. The job may still have to carry out its actions. */
enum unit_state machine_unit(const struct job *job, uint32_t track);
void machine_full(struct job *job, uint32_t track);
/* Tells the node something else about the unit: `say` is node_landed(), node_spoil(), node_differ(),
 * node_tear_unit() or node_quiet(). */
void machine_say(struct job *job, uint32_t track,
                 void (*say)(struct node *node, uint64_t now, struct generation generation, uint32_t track));

/* Whether members may begin again in the next generation what comes to nothing now, without hearing of it.
 * They may if all of them come to that generation as they are. A job that has lost a member is told so at
 * once. */
bool machine_may_resume(const struct job *job);
/* Members of this node cannot go on in the next generation as if nothing had happened. */
void machine_tear(struct job *job);
/* The coordinator has ended the job: no other one hears of its node. */
void machine_end_of_job(struct job *job);

/* Units of that track that have been committed, over all generations. */
uint64_t machine_committed(const struct job *job, uint32_t track);
/* Number of the open operation, or of the next one: the same on all nodes, in all generations. */
uint64_t machine_operation(const struct job *job);

/* No other node belongs to the generation. */
bool machine_is_alone(const struct job *job);
/* Once all buckets of the step are done, it says that it is prepared, or the step is committed: it is not
 * frozen, or has said so before, or the step was decided. */
bool machine_may_prepare(const struct job *job, uint32_t track);
/* This node's place among those of the generation. */
uint32_t machine_node_rank(const struct job *job);
/* The rank of that node in the communicator of the present generation. */
uint32_t machine_rank_of(const struct job *job, uint32_t address);
/* The engine that makes this part of each communicator; NULL: communicators have no such part. */
struct engine *machine_engine(const struct jobs *jobs, uint32_t part);
/* The lanes of a part. The second part, if there is one, has the last lane, which is that of operations. */
struct machine_lanes {
        uint32_t first, n;
};
struct machine_lanes machine_lanes(const struct job *job, uint32_t part);
/* Sends the other nodes the table that the engine has published for the communicator that is being built. */
void machine_publish(struct job *job, const void *table, size_t bytes);
/* Sends a letter, see hub.h. The observer of the job's table gets those that come in. */
bool machine_post(struct job *job, const struct hub_letter *letter);
/* The cluster has no address for this node yet. */
bool machine_is_unplaced(const struct job *job);
/* The node is in a generation of which its members hear only when the communicator is there, and hears of its
 * coordinator. */
bool machine_is_ahead(const struct job *job);
/* The engine has something of this job that it has not ended. */
bool machine_engine_busy(const struct job *job);
/* How long this node took, after the latest loss, to end the collectives that it had begun with others. */
uint64_t machine_filling(const struct job *job);
/* Reports of the engine; see node.h. */
void machine_built(struct job *job, struct generation comm, struct nodeset unreachable);
void machine_done(struct job *job, uint32_t lane, uint64_t sequence, uint64_t value);
void machine_aborted(struct job *job);
void machine_unreachable(struct job *job, struct nodeset nodes);

/* A job that comes from a former daemon: node and coordinator begin anew and wait for what its members here
 * say, those that are new in the job wait with them. 0, QUOTA with *refusal, or -ENOMEM. */
int machine_expect(struct job *job, uint32_t members, struct refusal *refusal);
/* See node_restore(). */
void machine_restore(struct job *job, const struct report *report);
