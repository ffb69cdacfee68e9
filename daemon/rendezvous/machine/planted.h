/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bugs that a test can switch on, to show that the simulator finds them. They exist only in the copy of these
 * sources that is compiled for that test; in the daemon each of them is the constant false.
 */
#pragma once

enum planted {
        PLANTED_NOTHING,
        PLANTED_COMMITS_IN_DOUBT,  /* a node that is prepared commits, whatever the verdict is */
        PLANTED_PREPARES_EARLY,    /* a node calls itself prepared before it has all results */
        PLANTED_IGNORES_MISSING,   /* a node opens steps without a member that it has lost */
        PLANTED_TELLS_UNLANDED,    /* a step is called committed before its results are in the arenas */
        PLANTED_TELLS_EARLY,       /* VOID is told before the last access to the arenas has ended */
        PLANTED_RANK_TWICE,        /* the last rank of a new generation is given away twice */
        PLANTED_GENERATION_TWICE,  /* a new generation gets the number of the one before */
        PLANTED_FORGETS_A_NODE,    /* the coordinator never judges a silent node */
        PLANTED_CUT_TOO_LOW,       /* the cut is the minimum over the nodes */
        PLANTED_FENCE_OPEN,        /* a node listens to coordinators of terms that are over */
        PLANTED_GROWS_ANYWHERE,    /* the world grows without waiting for the end of the step */
        PLANTED_RESTLESS,          /* after a loss the coordinator freezes generations without a reason */
        PLANTED_HASTY,             /* a coordinator that has just begun waits for no node */
        PLANTED_STATE_OF_ANYBODY,  /* the source is rank 0, whatever it has */
        PLANTED_HOLDS_BACK,        /* a node that holds still opens nothing that an open unit needs */
        PLANTED_STOPS_ONCE,        /* the coordinator does not let others open what a node needed to open */
        PLANTED_HOLDS_FOR_SPARES,  /* the world holds still for members that do not fit */
        PLANTED_BLAMES_ANYBODY,    /* the loss that members are told is not the one that was */
        PLANTED_PREPARES_BY_MARK,  /* after a restart a step that was begun is called prepared */
        PLANTED_ASSUMES_UNTOUCHED, /* after a restart a step that may have begun is called untouched */
        PLANTED_AWAITS_NO_NODE,    /* a coordinator does not wait for members on their way back */
        PLANTED_FORGETS_TERMS,     /* a coordinator that starts anew counts its terms from 1 */
        PLANTED_TRUSTS_CLOCKS,     /* a machine takes its driver's clock for the time */
        PLANTED_NUMBERS_ALONE,     /* a node gives its plans tracks of its own choice */
        PLANTED_COUNTS_ALONE,      /* a node does not hear how far others have come with a closed plan */
        PLANTED_FORGETS_COMMITS,   /* a commit is in the journal only after a member has heard of it */
        PLANTED_LAUNCHES_BY_READY, /* a node launches any full unit on a shared lane, without a turn */
        PLANTED_ASKS_EARLY,        /* a unit gets its turn before all members have given everything to it */
        PLANTED_KEEPS_TURNS,       /* turns outlive their generation */
        PLANTED_FORGETS_TURNS,     /* a coordinator that takes over knows of no turn that another one gave */
        PLANTED_CREDITS_LOWEST,    /* a done collective counts for the lowest track that waits on its lane */
        PLANTED_VOID_FOR_SOME,     /* a node alone decides whether its members hear of something void */
        PLANTED_FORGETS_TO_SYNC,   /* members that were to synchronise count for nothing in the next one */
        PLANTED_LAUNCHES_UNAGREED, /* a node launches everything that it is ready for, whatever others are */
        PLANTED_AGREES_WITH_ANY,   /* nodes may launch everything that any of them is ready for */
        PLANTED_FORGETS_GO,        /* a coordinator that takes over knows of no go that another one said */
        PLANTED_KEEPS_GO,          /* go outlives its generation */
        PLANTED_LAUNCHES_BY_LANE,  /* a node that was suspended launches one lane after the other */
        N_PLANTED,
};

#ifdef MACHINE_PLANTED_BUGS
extern enum planted planted_bug;
#define planted(bug) (planted_bug == (bug))
#else
#define planted(bug) 0
#endif
