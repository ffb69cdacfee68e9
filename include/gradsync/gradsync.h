/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradsync: data-parallel gradient synchronisation as a service.
 *
 * Several processes train the same model, each on its own share of the data. After every backward
 * pass their gradients must be averaged. A trainer that uses this library keeps its gradients in
 * memory shared with a daemon (gradsyncd). It marks each gradient that is ready while it goes on
 * computing the others, and the daemon averages meanwhile across all members of the job. This
 * header is the manual.
 *
 *
 * THE TRAINER'S LOOP
 *
 *      check(gradsync_open(&gs, NULL));                   the socket comes from the environment,
 *      check(gradsync_join(gs, NULL, &job));              so do the job, its size and our rank
 *      for (i = 0; i < layers; i++)
 *              check(gradsync_param(job, name[i], GRADSYNC_F32, ndim[i], shape[i]));
 *      check(gradsync_plan(job, &plan));                  all members name the same parameters
 *      check(gradsync_broadcast(job, weights, bytes, 0)); all start from rank 0's weights
 *      for (step = 0; step < steps; step++) {
 *              for (i = layers; i-- > 0;) {
 *                      backward(i, gradsync_gradient(plan, i));
 *                      check(gradsync_ready(plan, i));    never waits
 *              }
 *              check(gradsync_finish(plan, &info));       waits for what is left
 *              optimise(plan);                            every member holds bit-identical averages
 *      }
 *      check(gradsync_leave(job));
 *      gradsync_close(gs);
 *
 *
 * OBJECTS AND THEIR LIVES
 *
 * struct gradsync is a connection to one daemon. gradsync_open() makes it; gradsync_close() ends it
 * and everything that was made through it.
 *
 * struct gradsync_job is this process's membership of a job. gradsync_join() makes it;
 * gradsync_leave() ends it and its plans.
 *
 * struct gradsync_plan is a list of parameters with the memory that holds their gradients.
 * gradsync_plan() makes it; gradsync_plan_free() ends it.
 *
 * struct gradsync_memory is memory of the trainer's own in which gradients can lie.
 * gradsync_register() makes it; gradsync_unregister() ends it.
 *
 * A pointer to an object that has ended must not be used again. A process may hold several
 * connections, several jobs over each, and several plans in each job. (Several plans are for models
 * that step at different rates: each plan counts its own steps.)
 *
 * A job is a group of members that average gradients together. It belongs to the user that opened
 * it: (user, name) is its identity. It forms when all members are there. `rank` (0 … world-1)
 * numbers the members, `local_rank` those on this daemon. LOSSES says what happens when a member is
 * lost.
 *
 * All members make the same calls that involve others (plans, steps, collectives) in the same order
 * within a plan or a job. A difference is refused on every member, by name, before any data moves.
 *
 *
 * WHO OWNS WHICH MEMORY UNTIL WHEN
 *
 * gradsync_gradient() returns the address of a parameter's gradient: a dense array in row-major
 * order, aligned to 64 bytes. The daemon allocates the memory and shares it. The address stays the
 * same until the plan is freed or the job is left. The memory begins as zeros.
 *
 *   from finish() (or plan()) until ready()    the trainer's: it reads and writes
 *   from ready() until finish() or wait()      gradsync's: reading gives anything, writing corrupts
 *                                              the result
 *   after finish() returned OK                 the trainer's: the average
 *   after wait() returned OK                   the trainer's, to read: the average, but provisional
 *                                              until finish() is OK
 *   after VOID_RETRY or VOID_BEHIND            the trainer's: undefined contents
 *
 * Between the parameters of a bucket there may be padding, which is gradsync's. The memory of
 * gradients may also be the trainer's own: see MEMORY OF YOUR OWN.
 *
 * Text, names, shapes and option structures given to a call are copied; the caller may free them
 * when the call has returned. Data given to a collective must stay where it is until the call has
 * returned something other than AGAIN and INTERRUPTED. A string that the library returns lives as
 * long as the object it was asked of. The string of gradsync_error() lives until this thread's next
 * call that fails.
 *
 *
 * MEMORY OF YOUR OWN
 *
 * A trainer whose framework keeps all gradients in one flat buffer can register that buffer and
 * place parameters in it, instead of having the daemon allocate an arena. The buffer is a memfd
 * that is mapped shared and can neither shrink nor grow:
 *
 *      fd = memfd_create("gradients", MFD_CLOEXEC | MFD_ALLOW_SEALING);
 *      ftruncate(fd, bytes);
 *      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
 *      buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
 *      check(gradsync_register(job, fd, 0, bytes, buffer, &memory));
 *      for (i = 0; i < layers; i++)
 *              check(gradsync_param_at(job, name[i], GRADSYNC_F32, ndim[i], shape[i], memory,
 *                                      offset[i]));
 *      check(gradsync_plan(job, &plan));          gradsync_gradient(plan, i) is buffer + offset[i]
 *
 * Offsets of parameters are multiples of 64. The offset of a registered range in its file is a
 * multiple of the machine's page size.
 *
 * A bucket goes on as long as parameters of one type follow each other in one memory, in the order
 * of registration, each at the next multiple of 64 after the one before it. A gap ends the bucket.
 * The up to 63 bytes between two parameters are padding. So a few long runs are good, and a buffer
 * whose parameters lie closer together is named as one parameter.
 *
 * A plan can have parameters in several memories, and others in its arena. A memory, or a file, can
 * hold several plans. No byte of a file belongs to two parameters, whichever member registered it.
 *
 * Members need not do the same. One with a buffer and one with an arena agree on a plan if their
 * buckets are the same, that is if the buffer has no gaps.
 *
 * All pages of the file must be present, also outside of the registered range (gradsync_register()
 * makes those of the range present), and must stay present until the memory is unregistered. Pages
 * that the trainer gives back to the kernel (fallocate() with FALLOC_FL_PUNCH_HOLE, MADV_REMOVE)
 * would be charged to the daemon, so such a member is evicted. The same holds for arenas.
 *
 * The memory stays the trainer's: the daemon never clears its contents and touches only buckets
 * that were marked ready. It keeps the memory mapped until it is unregistered, or the member has
 * left or is gone. A leave() or close() in the middle of a step does not wait for buckets of this
 * memory that are being reduced: call finish() first if the memory has another use.
 *
 *
 * GPUS
 *
 * A daemon whose device is cuda:N serves one GPU. Then arenas are memory of that GPU:
 * gradsync_gradient() returns an address of the GPU, in the primary context that CUDA's runtime and
 * frameworks use, and no CPU can read there. Kernels of the trainer write gradients, and
 * gradsync_ready_on() says in which stream. A gradient that is marked with ready() must be complete
 * already. After finish() has returned OK, work that is put into any stream finds the averages. A
 * gradient counts as marked, for what LOSSES says, once the work that makes it has ended.
 *
 *      launch_backward(i, gradsync_gradient(plan, i), stream);
 *      check(gradsync_ready_on(plan, i, stream));
 *
 * Parameters of an absent() are cleared by a stream of the library's own, so work of the caller's
 * streams that writes them must have ended before; those of an absent_on() are cleared by the
 * caller's stream, after that work. Data of collectives, and pieces of a state, may lie on the GPU
 * or in host memory; work of the caller's streams on them must have ended before the call.
 *
 * The library loads the driver (libcuda.so.1, or GRADSYNC_CUDA_DRIVER) when a plan is made, or
 * gradsync_device() is called, and finds the daemon's GPU by its UUID. It then has one thread of
 * its own for each connection to such a daemon: the thread sleeps until events of the trainer's
 * streams have ended, then tells the daemon. It has all signals blocked, and ends with
 * gradsync_close().
 *
 *
 * ZEROING
 *
 * The library never clears gradients. A backward pass that overwrites (dW = …) needs no zeroing. A
 * backward pass that adds to what is there (dW += …) must clear the gradients itself after finish()
 * and before the first addition, because finish() leaves the average there. gradsync_absent()
 * clears the parameter it is called for.
 *
 *
 * STEPS
 *
 * A step averages all parameters of a plan once. Parameters are laid out in buckets, which are
 * reduced as a whole. The plan walks the parameters from the last registered to the first, because
 * backward passes produce gradients in that order, and closes a bucket when it holds at least its
 * limit (a small first one, then larger ones). A bucket goes to the daemon when all of its
 * parameters are ready and all buckets before it have gone. The order of ready() does not matter
 * for the result, only for how early work can begin. Every member's result has the same bits.
 *
 * Each parameter is marked once per step, ready() or absent(). finish() waits until the step has
 * its outcome, which is the same on every member: committed (OK), or void because a member was lost
 * (VOID_RETRY, VOID_BEHIND). A step is committed once every member has marked all of its
 * parameters, whichever member is lost afterwards. The next step begins with the next mark.
 *
 *
 * LOSSES
 *
 * A member is lost when its process ends, when it closes its connection, or when the daemon evicts
 * it. A loss ends the generation: an open step is void for all members, and no member ever sees
 * half of a sum.
 *
 * The place of the lost member is kept for a while (rejoin_grace_ms). A process that joins the job
 * by the same name, and by the same rank if ranks were asked for, takes the place: it gets the rank
 * and the member id of the lost one. The others wait for it within finish(), or within a
 * collective. Then the job is in its next generation, with the same ranks, and finish() returns
 * VOID_BEHIND. All members call gradsync_sync_state(), which gives the new member the state of the
 * others, and compute the step again. (The new process makes the plans that the others have at that
 * moment, in the order in which they made them. A plan that is being made is one of these, unless
 * it was asked for with void_on_loss.)
 *
 * If no process comes in time, the members that are left close ranks and finish() returns
 * VOID_RETRY: rank and world size may have changed. This needs at least min_world members, none of
 * which has asked for a rank. Otherwise the job is over: finish() returns VOID_RETRY, and all
 * further calls return MEMBER_LOST.
 *
 * The first finish() of a plan in a new generation returns VOID_RETRY or VOID_BEHIND if a parameter
 * of its step was marked before a call had reported that generation. This holds also if all marks
 * came after the generation had changed, so that no change goes unseen. Marks of such a step are
 * dropped, and so are marks between a VOID_BEHIND and gradsync_sync_state(). Marks after that call,
 * and after a VOID_RETRY, count in the new generation. A collective returns the same results if no
 * other call has reported the generation.
 *
 * Each plan has steps and outcomes of its own. Where a training step consists of steps of several
 * plans, a loss may find one of them committed and make another void. So a trainer counts the steps
 * of each plan that it has applied, and keeps these counts with the parameters, in the state that
 * it synchronises. When a call on a plan or a collective has reported a change of members, the
 * trainer
 *
 *   1. calls finish() for each other plan with marks that are not finished, and applies the
 *      averages if the result is OK;
 *   2. calls gradsync_sync_state(), if the first call, or one of these, has returned VOID_BEHIND;
 *   3. computes the part of the training step that the state lacks, from a point that follows from
 *      the state alone, so that all members, the new one too, make the same calls.
 *
 * The first two may change places: then the marked steps are void, even if they were committed.
 * Marks of such a plan do not count without its finish(). A plan without marks needs no finish():
 * its next step begins with its next mark.
 *
 * A job that has formed with fewer than max_world members takes more in later, if no member has
 * asked for a rank. Between steps it goes into a new generation with them. The others learn of it
 * in the same way, by VOID_BEHIND.
 *
 * A member that calls leave() gives up its place at once: the place is not kept. With at least
 * min_world members left, and no ranks asked for, the others go on without it. Otherwise the job is
 * over.
 *
 *
 * TWO PROCESSES OF ONE RANK
 *
 * A rank that was asked for belongs to the process that has it: another process that asks for it is
 * refused, RANK_TAKEN. But a process that its launcher has given up may live on for a while,
 * stopped, or stuck in the kernel. So a launcher can count the processes that it starts for each
 * rank (the option `instance`, GRADSYNC_INSTANCE). Then a newer process takes the rank at once: for
 * the others the older one is lost, and LOSSES applies. The older one's next call returns STALE,
 * and nothing that it still does has an effect. An instance that is not newer than the one that has
 * the rank is refused, STALE. Where one of the two has no instance, the answer is RANK_TAKEN. One
 * launcher counts all processes of a job.
 *
 *
 * SPARES
 *
 * A job that has all its members refuses another process, JOB_FULL. A spare (the option `spare`, or
 * GRADSYNC_SPARE=1 where no rank is set) waits instead. Its gradsync_join() returns when it has got
 * the place of a lost member, with that member's rank and id, and from then on it is a member like
 * any that comes later. So the others do not wait for a launcher to start a process. A spare asks
 * for neither rank nor local rank, and names the job's min_world and max_world. There may be
 * several; the first that came is the first that gets a place. If the world can grow, a spare is
 * taken in between steps like others. While the job is forming, spares count for min_world, and are
 * taken in when the last call has passed and others have not come.
 *
 * The place of a member that leaves goes to a spare, too. The wait of a spare has no end, unless
 * timeout_ms is given (TIMEOUT), or the job is over (MEMBER_LOST). A process that comes for a lost
 * member's rank after a spare has got it is refused, RANK_TAKEN. After a restart of the daemon a
 * spare asks again, and gets no place before the members have had the time to come back.
 *
 *
 * DAEMONS THAT GO
 *
 * The daemon can be upgraded, or die, and a trainer notices no more than a pause. When the
 * connection is lost, the library waits for a daemon at the same socket, 30 s by default
 * (reconnect_timeout_ms). It reports each job to the new daemon and hands it the memory of the
 * gradients, registered memory too: addresses, ranks, plans and numbers of steps stay, only the
 * generation is another one. (The library keeps a descriptor of each such memory for this.) ready()
 * and absent() go on meanwhile; all other calls wait. A member finds the new daemon with its next
 * call. The others wait for it twenty times as long as for a daemon (10 min). A member that has not
 * come by then has lost its place.
 *
 * After an orderly end nothing is void: finish(), collectives, and joins and plans that are being
 * made go on as if nothing had happened. After a crash an open step is void (VOID_RETRY) if the
 * daemon may have begun to reduce it. If one member knows that it was committed and another does
 * not, all get VOID_BEHIND. A step of which some member had not marked any bucket goes on. The
 * flight record and the totals of the job begin anew.
 *
 * If no daemon comes in time, the result is DAEMON_LOST. It comes at once where
 * reconnect_timeout_ms is negative, with daemons of earlier versions, and if the new daemon serves
 * another GPU, none instead of one, or the same from the other side of MPS.
 *
 *
 * THREADS
 *
 * ready(), absent() and wait() may be called from any threads at once, also for the same plan. A
 * gradient's writes must happen before its ready(). All marks of a step must happen before its
 * finish() begins, and one thread at a time calls finish() of a plan. Calls that only ask
 * (gradient(), rank(), unused(), …) may come from any thread. join(), param(), register(),
 * unregister(), plan(), plan_free(), leave(), sync_state() and collectives belong to one thread at
 * a time per job: a second one gets STATE. Waiting in one thread never delays ready() in another.
 *
 * gradsync_close() must be the last call on a handle, and gradsync_plan_free() on a plan, with no
 * other in progress: a thread that is in wait() has to return first. A thread must not be cancelled
 * (pthread_cancel()) or leave by longjmp() while it is in a call: others may be waiting for it.
 *
 *
 * DEADLOCKS
 *
 * An example: one member waits in finish() for the gradients of another one, which waits for the
 * first in a barrier. Neither can go on. The daemon sees that, and ends the job after its
 * deadlock_timeout: all members get DEADLOCK, with a text that names each rank, the call in which
 * it waits, and what the other one has to do.
 *
 * The daemon counts only members that can do nothing else while they wait: those whose calls on the
 * job all come from one thread. If gradients are marked, and steps finished, in another thread than
 * that of plans and collectives (as autograd does on GPUs), join with `sequential`. It says that no
 * other thread is about to make a call while one call waits. With three threads, or on a nonblocking
 * handle, a member is never counted, and such a wait ends with the daemon's step_deadline.
 *
 *
 * SIGNALS
 *
 * The library installs no signal handlers, raises no SIGPIPE, starts no threads (but see GPUS), and
 * neither logs nor ends the process. A call that waits returns INTERRUPTED when a signal handler has
 * run in its thread (whether or not SA_RESTART is set). Called again with the same arguments, it
 * goes on where it was. Only gradsync_open() cannot be interrupted. Descriptors are close-on-exec.
 *
 *
 * FORK
 *
 * Children (data loader workers) inherit no connection and no gradients. In the child, the memory
 * that gradsync_gradient() points to is not mapped (unless the trainer has mapped it itself,
 * without MADV_DONTFORK), the descriptors are closed in the moment of fork(), and every call on a
 * handle of the parent returns FORKED; functions that only ask for a number still answer.
 * gradsync_close() of an inherited handle frees the child's copy of memory and touches nothing
 * else. A child may open a connection of its own. The daemon notices the end of the trainer
 * although children live on. (This covers fork(). A child made by vfork() or clone() must not use
 * the library before it has called exec().)
 *
 *
 * BLOCKING, OR THE CALLER'S OWN LOOP
 *
 * Calls that may wait: open, join, register, unregister, plan, wait, finish, plan_free, leave,
 * sync_state, and the collectives. With gradsync_options.nonblocking they return AGAIN instead of
 * waiting. (open itself always waits, 10 s at most.) Each time gradsync_fd() is readable, the
 * caller's loop then calls
 *
 *      gradsync_dispatch(gs);     and then, again, each call that has returned AGAIN,
 *                                 with the same arguments
 *
 * The descriptor is level-triggered, and also readable when there is something to write.
 *
 * Several calls may be pending, one per plan and one per job. ready() and absent() never wait, on
 * any handle: if the daemon does not read, what they have to send is sent by the next ready(),
 * waiting call or dispatch.
 *
 *
 * WHICH JOB AM I IN?
 *
 * Fields of gradsync_join_options that are left open are filled from the first of these rows whose
 * variables are all set:
 *
 *   launcher               name                       world size           rank
 *   gradsyncctl run        GRADSYNC_JOB               GRADSYNC_WORLD_SIZE  GRADSYNC_RANK
 *   torchrun               TORCHELASTIC_RUN_ID        WORLD_SIZE           RANK
 *   srun (Slurm step)      SLURM_JOB_ID.SLURM_STEP_ID SLURM_STEP_NUM_TASKS SLURM_PROCID
 *                          (SLURM_LOCALID is set, too)
 *   mpirun of Open MPI     PMIX_NAMESPACE             OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
 *   mpiexec of MPICH       GRADSYNC_JOB               PMI_SIZE             PMI_RANK
 *   Kubernetes indexed job GRADSYNC_JOB               GRADSYNC_WORLD_SIZE  JOB_COMPLETION_INDEX
 *   a launcher of spares   GRADSYNC_JOB               GRADSYNC_WORLD_SIZE  none; GRADSYNC_SPARE=1
 *
 * A daemon that has a coordinator (see gradsyncd.conf(5)) looks for the members of a job on all
 * daemons of that coordinator, and another one on itself alone. GRADSYNC_SCOPE (or the option) says
 * which of the two it has to be: "cluster", or "host".
 *
 * Where several tenants share one uid, GRADSYNC_JOB_TOKEN (or the option) keeps them out of one
 * another's jobs. The first member's token is the job's, and every process that joins must bring
 * the same. It is compared, never shown.
 *
 * A torchrun id "none" is replaced by MASTER_ADDR:MASTER_PORT. Where all ranks of a torchrun without
 * an id, or of an Open MPI mpirun, are on one host (LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE),
 * "@" and 16 digits follow, which stand for the host's boot, the network namespace, and the address
 * of the launcher (PMIX_SERVER_URI… of an mpirun): two containers never get into one job because
 * their launchers have chosen the same name. OMPI_COMM_WORLD_RANK or MPI_LOCALRANKID shows that an
 * mpirun has started the ranks from within a Slurm step: then the row of srun, which would describe
 * the one process on each host, does not count. MPICH's own variables are those of PMI, which has
 * no name for the job, so GRADSYNC_JOB has to be exported to all ranks. In a name made of
 * PMIX_NAMESPACE, spaces, control characters, '/', '%' and bytes outside of ASCII are written as %XX.
 *
 * The local rank is taken from GRADSYNC_LOCAL_RANK, LOCAL_RANK, SLURM_LOCALID,
 * OMPI_COMM_WORLD_LOCAL_RANK or MPI_LOCALRANKID, the incarnation from GRADSYNC_INCARNATION,
 * TORCHELASTIC_RESTART_COUNT or SLURM_RESTART_COUNT of the same row, if set. GRADSYNC_INSTANCE is
 * how many processes the launcher has started for this rank before (0, 1, ...). It goes with any
 * row, and counts if the rank is taken from that row. A variable that is not a number, or a row
 * that is set in part only, is an error that names the variable; a size without a rank, or a rank
 * without a size, names both.
 *
 * The socket is gradsync_options.socket, else GRADSYNC_SOCKET, else
 * $XDG_RUNTIME_DIR/gradsync/DEVICE/socket, else /run/gradsync/DEVICE/socket. DEVICE is
 * gradsync_options.device, else GRADSYNC_DEVICE, else that of the daemon which serves the GPU of
 * this thread's current CUDA context, else "cpu". (If a daemon that may serve this GPU refuses, or
 * does not answer, and no other one serves it, that is the result: "cpu" would be a surprise.)
 *
 * Names of jobs and parameters are UTF-8 of 1 to 255 bytes without control characters; those of
 * jobs without '/'.
 *
 * Alone: if no launcher's variable is set, no socket was named, and no daemon listens, the handle
 * is a world of one in which every call works on this process's memory (collectives: on a GPU's,
 * too), so that a trainer can be tried without anything running. With a launcher's variable set a
 * missing daemon is always an error, and with a daemon a job without a name is one (INVALID): a
 * job never becomes smaller silently, and two processes never become two jobs. The library writes
 * nothing, so a trainer tells its user that it is alone: gradsync_device() gives it the name "".
 *
 *
 * ERRORS, AND WHAT TO REBUILD
 *
 * Functions that can fail return an enum gradsync_result; GRADSYNC_OK is 0. gradsync_error() then
 * has one or two sentences: what happened, to whom (job, rank, pid, parameter), what to do; rank,
 * pid and parameter are in gradsync_culprit(), too. A call that fails changes nothing unless its
 * declaration says otherwise. Any call may return, beside what its declaration lists:
 *
 *   INVALID         an argument is wrong (NULL, out of range, not a name)
 *   FORKED          the handle belongs to the parent process
 *   SYSTEM          a system call failed; NO_MEMORY: there was not enough memory
 *
 * any call on a connection that needs the daemon:
 *
 *   DAEMON_LOST     the daemon has ended the connection, or is gone and no other one has come in
 *                   time: close, open, join, plan. Calls that are waiting return it, too
 *   PROTOCOL        the daemon sent something that makes no sense; the connection is over. (From a
 *                   sealed collective: other members' data was changed; the connection stays)
 *
 * (The daemon can end a connection with another result, which all further calls return: for example
 * STATE after a mistake in the protocol, OPERATION_MISMATCH after divisors that differ, QUOTA.)
 *
 * and any call on a job or its plans, except leave(), and except finish() of a step whose outcome
 * is known:
 *
 *   MEMBER_LOST     the job is over: it has lost a member whose place no process took, or a member
 *                   has left that it cannot do without
 *   DEADLOCK        the job is over: its members waited for each other: see DEADLOCKS
 *
 *
 * VERSIONS
 *
 * Structures start with their size, set by their initialiser, so that fields can be added at the
 * end. A program built for this header runs with newer libraries of the same soname; with an older
 * one as long as it leaves the new fields zero. Library and daemon agree on a version of their
 * protocol when a handle is opened; where they have none in common, gradsync_open() returns VERSION,
 * and the text names both. From the first release on, releases of one major version, and of
 * neighbouring minor ones, work together.
 */
#ifndef GRADSYNC_H
#define GRADSYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "types.h"

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

struct gradsync;        /* a connection to one daemon */
struct gradsync_job;    /* this process's membership of a job */
struct gradsync_memory; /* memory of the trainer's own, registered with the daemon */
struct gradsync_plan;   /* parameters cut into buckets, and the arena of their gradients */

/* ---- Connections ------------------------------------------------------------------------- */

/*
 * A wait of a step, a collective or the agreement on a plan, and the member, if one is known, that
 * it waits for. Strings are valid during the callback.
 */
struct gradsync_stall {
        size_t size;
        uint64_t step; /* number of the step; 0: no step waits, `text` says what does */
        uint32_t rank; /* UINT32_MAX: the wait is for other nodes, and no member is known */
        int32_t pid;
        const char *process_state; /* "", "running", "sleeping", "stopped", "traced", "zombie", "gone" */
        uint32_t bucket;
        const char *parameter; /* the first that is not marked; "" if not known */
        uint64_t since_ms;     /* how long the wait has lasted */
        const char *text;      /* the whole report in one sentence */
        const char *host;      /* host of the member, or of the node; "": it is on this daemon */
};

/*
 * Called once per stall: when a step has waited longer than max(1 s, 3 × the median step), a
 * collective for 1 s, or a plan for 10 s. Runs in a thread that is in a waiting call or in
 * gradsync_dispatch() on that handle. It may make any call except gradsync_leave() of that job
 * and gradsync_close().
 */
typedef void (*gradsync_stall_fn)(void *data, struct gradsync_job *job, const struct gradsync_stall *stall);

/* Every options structure starts with its size, set by its initialiser, so that it can grow. */
struct gradsync_options {
        size_t size;
        const char *socket;           /* NULL: GRADSYNC_SOCKET, else the default places of
                                         `device` */
        const char *device;           /* NULL: GRADSYNC_DEVICE, else a GPU's, else "cpu" */
        const char *program;          /* name in `gradsyncctl status`; NULL: the process's own */
        int64_t reconnect_timeout_ms; /* how long to wait for a lost daemon; -1: not at all;
                                         0: GRADSYNC_RECONNECT_TIMEOUT (seconds), else 30 s */
        bool nonblocking;             /* calls that would wait return GRADSYNC_AGAIN */
        gradsync_stall_fn stall;      /* NULL: none */
        void *stall_data;
};
#define GRADSYNC_OPTIONS_INIT                                                                                \
        { sizeof(struct gradsync_options), NULL, NULL, NULL, 0, false, NULL, NULL }

/*
 * Connects to the daemon and agrees on a protocol version. Waits 10 s at most. `options` may be
 * NULL. On success *gs is a handle that gradsync_close() frees; otherwise it is untouched.
 *   NO_DAEMON    no daemon listens or answers; the text names each socket that was tried, and why
 *                it failed
 *   DENIED       no permission for the socket
 *   VERSION      daemon and library have no version of the protocol in common; the text names those
 *                of both
 *   QUOTA        this user has too many connections to the daemon
 *   UNSUPPORTED  a field is set that only a newer library knows
 */
int gradsync_open(struct gradsync **gs, const struct gradsync_options *options);

/*
 * Frees the handle with its jobs and plans; never fails, never waits, NULL is fine. The other
 * members of a job that was not left see this member as lost, so call gradsync_leave() first. In a
 * child process: frees memory only, the parent notices nothing.
 */
void gradsync_close(struct gradsync *gs);

/*
 * A descriptor for poll(), select() or epoll: readable when gradsync_dispatch() has something to
 * do. It stays the handle's: neither read nor close it. -1 in a child process.
 */
int gradsync_fd(const struct gradsync *gs);

/*
 * Takes what the daemon has sent and sends what is due, without waiting; runs the stall callback.
 * OK, or why the connection is over.
 */
int gradsync_dispatch(struct gradsync *gs);

/* The device that the daemon serves. Strings live as long as the handle. */
struct gradsync_device {
        size_t size;
        const char *name; /* "cpu", "cuda:0", ...: the daemon's name for it; "": this process is alone */
        const char *uuid; /* UUID of the GPU, "GPU-8e0f...", as nvidia-smi prints it; "": no GPU */
        int64_t ordinal;  /* number of the GPU in this process, for cudaSetDevice(); -1: no GPU */
};
#define GRADSYNC_DEVICE_INIT                                                                                 \
        { sizeof(struct gradsync_device), "", "", -1 }
/* On a GPU this loads the driver, as making a plan does. UNSUPPORTED: this process cannot use it. */
int gradsync_device(struct gradsync *gs, struct gradsync_device *device);

/*
 * Text of this thread's last call that did not return OK; "" before. Valid until the next such call
 * of this thread.
 */
const char *gradsync_error(void);

/* The member and the parameter that gradsync_error() is about, for programs that act on them. */
struct gradsync_culprit {
        size_t size;
        int64_t rank;          /* rank of the member that caused the failure; -1: none, or not known */
        int32_t pid;           /* pid of that member's process on its host; 0: not known */
        const char *parameter; /* the (first) parameter that the text is about, or "". Lives as long as
                                  the string of gradsync_error() */
};
#define GRADSYNC_CULPRIT_INIT                                                                                \
        { sizeof(struct gradsync_culprit), -1, 0, "" }

/* Fills *culprit for this thread's last call that did not return OK. */
int gradsync_culprit(struct gradsync_culprit *culprit);

/* "OK", "MEMBER_LOST", …; "?" for a number that is no result. Static. */
const char *gradsync_result_name(int result);
/* Version of the library that is running, such as "0.1.0". Static. */
const char *gradsync_version(void);

/* ---- Jobs -------------------------------------------------------------------------------- */

struct gradsync_join_options {
        size_t size;
        const char *name;              /* NULL: from the environment */
        uint32_t min_world, max_world; /* 0: from the environment; one of them given: both the
                                          same */
        int64_t rank;                  /* -1: none asked for */
        int64_t local_rank;            /* -1: lowest free */
        int64_t incarnation;           /* -1: from the environment, else 0; counts restarts of the
                                          whole job */
        int64_t timeout_ms;            /* join and plan; -1: wait for ever; 0: default 5 min, a
                                          spare's join for ever */
        int64_t last_call_ms;          /* once min_world is reached, how long to wait for more;
                                          0: default 2 s */
        int64_t rejoin_grace_ms;       /* how long a lost member's place is kept; -1: not at all;
                                          0: GRADSYNC_REJOIN_GRACE (seconds), else the daemon's
                                          setting. The job's is that of its first member */
        const char *token;             /* secret of the job, 1 to 255 bytes; NULL:
                                          GRADSYNC_JOB_TOKEN, else none */
        int64_t instance;              /* which process of its rank this is: 1 for the first one
                                          that the launcher started, 2 for the one that follows
                                          it; 0: from the environment, with the rank, else none;
                                          -1: none. See TWO PROCESSES OF ONE RANK */
        int64_t spare;                 /* 1: wait for the place of a lost member if the job is
                                          full; 0: as GRADSYNC_SPARE says, if no rank is asked
                                          for; -1: no. See SPARES */
        const char *scope;             /* "host": all members are on this daemon; "cluster": they may
                                          be on any daemon of its coordinator; NULL: GRADSYNC_SCOPE,
                                          else as the daemon is configured. The same on all members */
        bool sequential;               /* this process makes its calls on the job one after the other,
                                          whichever threads they come from: see DEADLOCKS */
};
#define GRADSYNC_JOIN_OPTIONS_INIT                                                                           \
        { sizeof(struct gradsync_join_options), NULL, 0, 0, -1, -1, -1, 0, 0, 0, NULL, 0, 0, NULL, false }

/*
 * Becomes a member of a job; waits until it has formed. `options` may be NULL: everything from the
 * environment (see WHICH JOB AM I IN?). Rank and local rank are taken from the environment only if
 * its name or world size is. A rank that is asked for is granted or refused, never replaced. A
 * handle can join up to 64 jobs, each once; a call that returned AGAIN or INTERRUPTED is recognised
 * by the job's name. On success *job is freed by gradsync_leave() or gradsync_close().
 *   INVALID      no job is named (a handle that stands alone needs none), the options or a variable
 *                make no sense, or the job's members here have another scope
 *   STATE        the job has been joined over this handle already
 *   TIMEOUT      not all members came; the text names the missing ranks. This process is no member
 *                any more
 *   RANK_TAKEN   another process has the rank; the text names it
 *   JOB_FULL     the job has its members already, and this is no spare
 *   STALE        a newer incarnation of the job is there, or a process of this rank that is not
 *                older
 *   QUOTA        this user has too many jobs on the daemon, or this handle has
 *   DENIED       the job's members have another token, or none
 *   UNSUPPORTED  the scope is "cluster", and the daemon has no coordinator
 *   MEMBER_LOST  the job whose place the caller waited for is over
 *   NO_DAEMON    the handle stands alone, but more than one member is asked for
 */
int gradsync_join(struct gradsync *gs, const struct gradsync_join_options *options,
                  struct gradsync_job **job);

/*
 * Gives the membership up; waits for the daemon's last access to this member's memory. The job and
 * its plans are gone then, also if the result is an error, except for AGAIN, INTERRUPTED, STATE,
 * INVALID and FORKED. A step that is open is void for the other members. They go on without this
 * one, or their job is over and they get MEMBER_LOST ("left"): see LOSSES. Works on a job that has
 * lost a member.
 *   STATE        another thread is in a call on this job or waits for a step of one of its plans,
 *                or the caller is its stall callback
 *   DAEMON_LOST  the daemon was gone already, and no other one came; or it has ended the connection
 *                for a reason whose result would be one of those above: the text has it
 */
int gradsync_leave(struct gradsync_job *job);

/*
 * Name and member id are fixed from join to leave. The others change with the generation, which
 * finish() or a collective reports by VOID_RETRY or VOID_BEHIND. All are 0, or "", for NULL.
 */
const char *gradsync_job_name(const struct gradsync_job *job);
uint32_t gradsync_rank(const struct gradsync_job *job);
uint32_t gradsync_local_rank(const struct gradsync_job *job);
uint32_t gradsync_world_size(const struct gradsync_job *job);
/* Number of the job's membership; grows with each change. */
uint32_t gradsync_generation(const struct gradsync_job *job);
/* Id of this member, the same for as long as the job lives. */
uint64_t gradsync_member_id(const struct gradsync_job *job);

/* ---- Plans ------------------------------------------------------------------------------- */

/*
 * Registers the next parameter of the plan that is to be made; its number is the count of those
 * before. A scalar has ndim 0 and no shape. At most 65536 parameters of 8 dimensions each. Sends
 * nothing. The list that this makes ends with gradsync_plan(), which takes it whether or not the
 * plan can be made.
 *   INVALID      the name is no name or is there already; the shape has a 0 or cannot be counted;
 *                the type is unknown
 *   STATE        a plan of this job is being made
 */
int gradsync_param(struct gradsync_job *job, const char *name, enum gradsync_dtype dtype, uint32_t ndim,
                   const uint64_t *shape);

/*
 * Registers memory of the trainer's own for parameters of this job's plans: `bytes` bytes from
 * `offset` (a multiple of the machine's page size) of a memfd with the seals F_SEAL_SHRINK and
 * F_SEAL_GROW; see MEMORY OF YOUR OWN. `address` is where the caller has mapped them (PROT_READ |
 * PROT_WRITE, MAP_SHARED, in one piece). It is verified where /proc can be read, and otherwise
 * believed. If it is NULL, gradsync maps them, at gradsync_memory_address(), and not for children.
 * Makes the pages of the range present, charged to this process's memory cgroup. The fd stays the
 * caller's and may be closed when the call has returned something other than AGAIN and INTERRUPTED.
 * On success *memory is freed by gradsync_unregister(), leave or close.
 *   INVALID      the fd is no such memfd (the text says what is wrong with it), the range does not
 *                lie in it, pages of the file are missing outside of the range, or the address is
 *                not that of the range
 *   STATE        other memory of this job is being registered
 *   QUOTA        this user has too much memory, or too many memories and arenas on the daemon
 *   NO_MEMORY    the pages do not fit into this process's memory limit
 */
int gradsync_register(struct gradsync_job *job, int fd, uint64_t offset, uint64_t bytes, void *address,
                      struct gradsync_memory **memory);

/*
 * Takes the memory back: gradsync has no access to it any more when this returns OK, and no mapping
 * if gradsync made it. NULL is fine.
 *   STATE        a plan has parameters in it: free the plan first; or the next one is to have some:
 *                call gradsync_plan() first
 */
int gradsync_unregister(struct gradsync_memory *memory);
/*
 * As gradsync_register(), for memory on the GPU that the daemon serves: `bytes` from `address` on, a
 * multiple of 64, in one allocation of cudaMalloc(), or in one of cuMemCreate() that can be exported
 * as a descriptor. The first needs a daemon of the same user. The whole allocation becomes visible to
 * the daemon. It must not be freed before gradsync_unregister(), leave() or close() has returned.
 *   INVALID      also: the daemon serves no GPU; the memory is no GPU's, or another GPU's, or not all
 *                of one allocation
 *   UNSUPPORTED  managed memory, memory of pools (cudaMallocAsync()) or of several handles, which cannot
 *                be shared
 *   DENIED       the daemon is of another user; the text says what to do
 */
int gradsync_register_device(struct gradsync_job *job, void *address, uint64_t bytes,
                             struct gradsync_memory **memory);
/* Where the range is mapped in this process. NULL for NULL. */
void *gradsync_memory_address(const struct gradsync_memory *memory);

/*
 * As gradsync_param(), for a parameter that lies at this offset (bytes, a multiple of 64) of
 * registered memory.
 *   INVALID      also: the memory is not one of this job's; the offset is no multiple of 64; the
 *                parameter does not lie in it
 */
int gradsync_param_at(struct gradsync_job *job, const char *name, enum gradsync_dtype dtype, uint32_t ndim,
                      const uint64_t *shape, struct gradsync_memory *memory, uint64_t offset);

struct gradsync_plan_options {
        size_t size;
        enum gradsync_reduce reduce; /* GRADSYNC_AVG */
        uint64_t first_bucket_bytes; /* the first bucket of each type closes at this payload;
                                        1 MiB */
        uint64_t bucket_bytes;       /* the other buckets close at this payload; 25 MiB */
        bool void_on_loss;           /* a loss ends the call; false: it waits for the lost
                                        member's successor. The same on all members, else
                                        PLAN_MISMATCH */
};
#define GRADSYNC_PLAN_OPTIONS_INIT                                                                           \
        { sizeof(struct gradsync_plan_options), GRADSYNC_AVG, UINT64_C(1) << 20, UINT64_C(25) << 20, false }

/*
 * Makes a plan of the registered parameters; waits until all members have made the same one (at
 * most the time-out of the join). Maps the memory of the gradients and makes all of it present,
 * charged to this process's memory cgroup. On success *plan is freed by gradsync_plan_free(), leave
 * or close.
 *
 * The list of registered parameters is empty again when the call has returned anything but AGAIN
 * and INTERRUPTED: a plan that cannot be made takes its list with it, and memory in which
 * parameters of it were placed can be unregistered. If members disagree or time runs out, or memory
 * is short, all members may then try another plan. (The list stays if the call is refused before it
 * looks at it: `plan` is NULL, the size of the options is wrong, another thread is in a call on
 * this job, the job or the connection is over.)
 *
 * If a member is lost meanwhile, the others wait for a process that takes its place and makes the
 * same plan. But a trainer may have decided only while it ran which plan to make, so that a new
 * process learns it only from the state of the others. With void_on_loss a loss makes the call void,
 * as it does with a collective: no member has the plan, the new process does not have to make it,
 * and all may try again, after gradsync_sync_state() if the result is VOID_BEHIND.
 *   VOID_RETRY, VOID_BEHIND   with void_on_loss: the generation has ended before all had made the
 *                  plan
 *   STATE          no parameter is registered, or one lies where a parameter of another plan does
 *   INVALID        the reduction is not defined for a parameter's type; a limit of the options is
 *                  0; the limits, or gaps in registered memory, make too many buckets (16384); two
 *                  parameters overlap in registered memory
 *   PLAN_MISMATCH  the text names the rank that differs and the first parameter that does
 *   TIMEOUT        the text names the ranks that did not come
 *   QUOTA          this user has too much memory or too many plans on the daemon
 *   NO_MEMORY      the gradients do not fit into this process's memory limit
 */
int gradsync_plan(struct gradsync_job *job, struct gradsync_plan **plan);
int gradsync_plan_with(struct gradsync_job *job, const struct gradsync_plan_options *options,
                       struct gradsync_plan **plan);

/*
 * Frees a plan and its gradients between steps; waits for the daemon. All members free a plan at
 * the same point: marking parameters of a plan that another member has freed ends this member's
 * connection. NULL is fine.
 *   STATE        a step of it is open, or another thread waits for it
 */
int gradsync_plan_free(struct gradsync_plan *plan);

/*
 * Fixed with the plan. Buckets are numbered in the order in which they are launched. 0 or NULL for
 * what does not exist.
 */
uint32_t gradsync_plan_params(const struct gradsync_plan *plan);
uint32_t gradsync_plan_buckets(const struct gradsync_plan *plan);
uint32_t gradsync_plan_bucket_of(const struct gradsync_plan *plan, uint32_t param);
void *gradsync_gradient(struct gradsync_plan *plan, uint32_t param);
/* Payload: all parameters, without padding. */
uint64_t gradsync_plan_bytes(const struct gradsync_plan *plan);

/* ---- Steps ------------------------------------------------------------------------------- */

/*
 * The parameter's gradient is complete: it is gradsync's from now on. Never waits; any thread. In a
 * step that is void already it does nothing and returns OK, so that a backward pass can run to its
 * end; finish() reports the outcome.
 *   STATE        the parameter is marked already in this step
 */
int gradsync_ready(struct gradsync_plan *plan, uint32_t param);

/*
 * This member has no gradient for the parameter in this step: its part is set to zero, and it
 * counts as ready. The divisor stays the same. Never waits; any thread.
 *   INVALID      the plan computes MIN, MAX or PROD, to which nothing can be contributed
 *   STATE        the parameter is marked already in this step
 */
int gradsync_absent(struct gradsync_plan *plan, uint32_t param);

/*
 * As ready() and absent(), for gradients on a GPU (see GPUS) that work in `stream` makes. The stream
 * is a CUstream or cudaStream_t of the GPU's primary context. The gradient is used only after all
 * work that is in the stream by now. Never waits; any thread.
 *   INVALID      also: the daemon serves no GPU, or the stream is another GPU's
 *   UNSUPPORTED  the stream is being captured into a graph: call it after the launch of the graph;
 *                or more than four streams make the gradients of one bucket
 */
int gradsync_ready_on(struct gradsync_plan *plan, uint32_t param, void *stream);
int gradsync_absent_on(struct gradsync_plan *plan, uint32_t param, void *stream);

/*
 * Gradient accumulation: while it is on, ready() and absent() do nothing, and gradients stay the
 * trainer's. Switch it on before the first backward of the step, off before the last one.
 *   STATE        on: parameters are marked already in this step
 */
int gradsync_accumulate(struct gradsync_plan *plan, bool on);

/*
 * For AVG, divides by this number instead of the world size in the step that is open or begins
 * next, and in no other (for members with uneven inputs). 0: the world size. All members set the
 * same one; a member that differs is evicted, and the text names it.
 *   INVALID      the plan does not compute AVG
 *   STATE        a bucket of the step is on its way already
 */
int gradsync_divisor(struct gradsync_plan *plan, uint32_t divisor);

/*
 * Waits until the parameter's average is there, for optimisers that work while backward still runs.
 * It is provisional: the step can still become void. Waits for the parameter's whole bucket and the
 * buckets before it; if their other parameters are not marked yet, another thread must mark them
 * meanwhile. If another thread's finish() ends the step meanwhile, it returns the outcome of that
 * step.
 *   STATE        the parameter is not marked in this step
 *   VOID_RETRY, VOID_BEHIND   the step is void; call finish()
 */
int gradsync_wait(struct gradsync_plan *plan, uint32_t param);

struct gradsync_info {
        size_t size;
        uint64_t step;          /* number of this step, from 1 */
        double norm;            /* norm of the whole result, over all buckets: square root of the
                                   sum of squares */
        uint64_t nonfinite;     /* NaN and infinite elements in all members' inputs */
        int64_t nonfinite_rank; /* lowest rank that had some, or -1 */
        uint64_t bytes;         /* payload reduced, without buckets that all members call absent */
        double exposed_s;       /* seconds that finish() and wait() blocked in this step */
        double elapsed_s;       /* seconds since the previous finish(), or the plan */
        uint32_t lost_rank;     /* VOID: the rank that was lost */
        int32_t lost_pid;       /* VOID: the pid of its process */
        char cause[256];        /* VOID: why it was lost */
};
#define GRADSYNC_INFO_INIT                                                                                   \
        { sizeof(struct gradsync_info), 0, 0., 0, -1, 0, 0., 0., 0, 0, "" }

/*
 * Ends the step: waits for its outcome. `info` may be NULL; it is filled for OK and for void steps.
 * Norm and non-finite counts cover floating-point parameters and cost nothing: they are taken while
 * reducing. On OK all gradients are averages, with the same bits on every member.
 *   STATE        parameters are neither ready nor absent (the text names the first), or gradients
 *                accumulate; mark them and call again, nothing is lost
 *   VOID_RETRY   a member was lost (info says which one, and why); gradients are undefined on all
 *                members, nothing was committed anywhere. The job is in a new generation: compute
 *                the step again, with the rank and the world size that hold now. Or the job is
 *                over: then the next call returns MEMBER_LOST
 *   VOID_BEHIND  the same, and a member is new, in the lost member's place or because the job has
 *                grown (lost_pid is 0 then): call gradsync_sync_state() first
 * If the step was committed before the loss, it returns OK, unless the state has been synchronised
 * in between: that state may be one without the step, so it returns VOID_RETRY.
 */
int gradsync_finish(struct gradsync_plan *plan, struct gradsync_info *info);

/*
 * True if no member used the parameter (all called absent()) in the last step that was finished with
 * OK: its average is zero, and an optimiser may leave it alone.
 */
bool gradsync_unused(const struct gradsync_plan *plan, uint32_t param);

struct gradsync_bucket_stats {
        size_t size;
        double norm;        /* square root of the sum of squares */
        uint64_t nonfinite; /* NaN and infinite elements; of the result: all members'
                               inputs together */
};
#define GRADSYNC_BUCKET_STATS_INIT                                                                           \
        { sizeof(struct gradsync_bucket_stats), 0., 0 }
#define GRADSYNC_RESULT_RANK (-1) /* the result instead of one rank's input */

/*
 * Statistics of one bucket in the last step that was finished with OK: of one rank's input, or of
 * the result. Zeros for integers, and before the first step.
 */
int gradsync_bucket_stats(const struct gradsync_plan *plan, uint32_t bucket, int64_t rank,
                          struct gradsync_bucket_stats *stats);

/* ---- Collectives outside steps ----------------------------------------------------------- */

/*
 * Members call one at a time per job, all in the same order; steps may be open meanwhile. Each call
 * waits for all members. Data passes through memory shared with the daemon in pieces, so any size works;
 * the first call that carries data allocates that memory (8 MiB by default). A call of no bytes
 * returns at once.
 *   OPERATION_MISMATCH  members called different things (kind, size, type, reduction, root, seals); it
 *                       fails on all of them, and the next collective works again. Contents of the
 *                       output are undefined
 *   STATE               another collective of this job is under way
 *   QUOTA, NO_MEMORY    there is no room for the shared memory
 *   PROTOCOL            only from a sealed collective: its data was changed on its way between hosts.
 *                       Nothing of the piece that was changed is in the output; gradsync_culprit()
 *                       has the rank that sent it. The connection stays, but members on other hosts
 *                       may have all of the data and go on: this one leaves, or ends, so that they
 *                       do not wait for it
 *   UNSUPPORTED         the daemon's staging memory is too small for so many members
 *   INVALID             data lies on another GPU than the daemon's; nothing was sent
 *   SYSTEM              the GPU did not copy: the connection is over, and this member lost
 *   VOID_RETRY          a member was lost before all had come; contents of the output are
 *                       undefined. The job is in a new generation: call it again, if all others do.
 *                       In the middle of a step call gradsync_finish() before that, for each plan
 *                       with marked parameters: it reports whether the step is committed, or has to
 *                       be computed again
 *   VOID_BEHIND         the same, and a new process has taken the lost member's place: call
 *                       gradsync_sync_state() before anything else that involves others, but after
 *                       gradsync_finish(); see LOSSES
 */

/* Returns when all members have called it. */
int gradsync_barrier(struct gradsync_job *job);
/* Copies rank `root`'s bytes to all members. */
int gradsync_broadcast(struct gradsync_job *job, void *data, size_t bytes, uint32_t root);
/*
 * As gradsync_broadcast(), sealed. Data of collectives travels between hosts unencrypted, where
 * others may be able to change it. The daemons send a proof with each piece of sealed data
 * (HMAC-SHA-256, under a key that reaches them over TLS), and hand out no piece without its proof.
 * That takes each daemon about a second of a processor per GiB; on one host it takes nothing. A seal
 * does not hide the data: others can still read it. All members call the same one of the two.
 * Changed data is refused on the hosts that it came to, also on the root's own if other members
 * share that host.
 */
int gradsync_broadcast_sealed(struct gradsync_job *job, void *data, size_t bytes, uint32_t root);
/*
 * Gathers `bytes` of each member, in the order of ranks, in `out` (world × bytes), which does not
 * overlap `in`.
 */
int gradsync_allgather(struct gradsync_job *job, const void *in, void *out, size_t bytes);
/* As gradsync_allgather(), sealed as gradsync_broadcast_sealed() is. */
int gradsync_allgather_sealed(struct gradsync_job *job, const void *in, void *out, size_t bytes);
/*
 * Reduces `in` (world × count elements) and leaves part `rank` of the result in `out` (count
 * elements; no overlap).
 */
int gradsync_reduce_scatter(struct gradsync_job *job, const void *in, void *out, size_t count,
                            enum gradsync_dtype dtype, enum gradsync_reduce reduce);
/* Reduces `count` elements, in place. AVG divides by the world size. */
int gradsync_allreduce(struct gradsync_job *job, void *data, size_t count, enum gradsync_dtype dtype,
                       enum gradsync_reduce reduce);

/* One piece of a trainer's state: parameters, momentum, or the state of a random generator. */
struct gradsync_state {
        void *data;
        uint64_t bytes;
};

/*
 * Brings the state of all members to the newest one among them. All members call it after the plan
 * is made, before the first step, and after each VOID_BEHIND. `step` is the trainer's own count of
 * steps that are in the state; the call sets it to that of the state which all have afterwards.
 * Buffers are the same in number and sizes on all members. All data that the call sends is sealed,
 * see gradsync_broadcast_sealed().
 *
 * The newest state is the one with the latest commit of this job, and among several of these the one
 * with the largest `step`. Members that have it already neither send nor receive, except for one of
 * them, which sends. So all of the state belongs into one call: another call right after it, with
 * other buffers, finds that all members have the newest.
 *
 * A process that is new in the job has no state, whatever it has read from a checkpoint, unless no
 * member has one. Then, if all report the same `step` above 0, they have read the same checkpoint
 * and nothing is sent. Otherwise rank 0's state is taken, or, if that member is lost meanwhile, the
 * state of the first member that has not begun to receive it.
 *
 * Losses meanwhile are dealt with inside the call: it starts again with the members that are there,
 * and a member that had begun to receive has no state until it has received all of one. Steps that
 * were marked before a change of members and not finished before this call are to be computed
 * again, by all. It is one collective: for one thread at a time, like the others.
 *   MEMBER_LOST         the job is over, or no member is left whose state is whole: restart from a
 *                       checkpoint
 *   OPERATION_MISMATCH  the members' buffers differ
 */
int gradsync_sync_state(struct gradsync_job *job, const struct gradsync_state *state, uint32_t n,
                        uint64_t *step);

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
