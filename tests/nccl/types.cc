// SPDX-License-Identifier: Apache-2.0
// proto/nccl.h against the nccl.h of a release: that this file compiles is the test. It is C++ because that
// can take the types of functions apart. See test_nccl_wheels.py, which compiles it.
#include <cstddef>
#include <type_traits>

#include <nccl.h>

#include "proto/nccl.h"

// Whether what we declare is passed in the same registers, and means the same, as what they declare.
template <class Ours, class Theirs, class = void> struct stands_for : std::is_same<Ours, Theirs> {};
template <class Theirs>
struct stands_for<int, Theirs, std::enable_if_t<std::is_enum_v<Theirs>>>
        : std::bool_constant<sizeof(Theirs) == sizeof(int)> {};
template <> struct stands_for<struct nccl_id, ncclUniqueId> : std::true_type {};
template <> struct stands_for<struct nccl_config, ncclConfig_t> : std::true_type {};
template <> struct stands_for<void *, ncclWindow_t> : std::true_type {};
template <class Ours, class Theirs> struct stands_for<const Ours, const Theirs> : stands_for<Ours, Theirs> {};
template <class Ours, class Theirs>
struct stands_for<Ours *, Theirs *, std::enable_if_t<!std::is_same_v<Theirs *, ncclWindow_t>>>
        : stands_for<Ours, Theirs> {};

template <class... Types> struct list {};
template <> struct stands_for<list<>, list<>> : std::true_type {};
template <class Ours, class... Our_rest, class Theirs, class... Their_rest>
struct stands_for<list<Ours, Our_rest...>, list<Theirs, Their_rest...>>
        : std::conjunction<stands_for<Ours, Theirs>, stands_for<list<Our_rest...>, list<Their_rest...>>> {};
template <class Ours, class... Our_arguments, class Theirs, class... Their_arguments>
struct stands_for<Ours(Our_arguments...), Theirs(Their_arguments...)>
        : stands_for<list<Ours, Our_arguments...>, list<Theirs, Their_arguments...>> {};

#define SAME(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #ours)
#define SAME_PLACE(ours, theirs)                                                                             \
        static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs) &&                \
                              std::is_same_v<decltype(nccl_config::ours), decltype(ncclConfig_t::theirs)>,   \
                      #ours)
#define SAME_FUNCTION(ours, name) static_assert(stands_for<ours, decltype(name)>::value, #name)

SAME(NCCL_OK, ncclSuccess);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);

SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_INT32, ncclInt32);
SAME(NCCL_INT64, ncclInt64);
SAME(NCCL_UINT64, ncclUint64);
SAME(NCCL_FLOAT16, ncclFloat16);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_BFLOAT16, ncclBfloat16);

#ifdef NCCL_SHRINK_DEFAULT
SAME(NCCL_SHRINK_IDLE, NCCL_SHRINK_DEFAULT);
#endif

SAME(NCCL_SUM, ncclSum);
SAME(NCCL_PROD, ncclProd);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_MIN, ncclMin);

static constexpr ncclConfig_t undecided = NCCL_CONFIG_INITIALIZER;
SAME(NCCL_MAGIC, undecided.magic);
SAME(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(NCCL_UNDEFINED, undecided.blocking);
SAME(NCCL_UNDEFINED, undecided.maxCTAs);
SAME(NCCL_UNDEFINED, undecided.splitShare);
static_assert(undecided.netName == nullptr, "what ours has if nothing is said");
SAME(NCCL_LEAST, NCCL_VERSION(2, 18, 0));

SAME(sizeof(struct nccl_id), sizeof(ncclUniqueId));
static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "what is newer comes after it");
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);

#define SAME_CALL(member, name, arguments) SAME_FUNCTION(nccl_result arguments, name);
NCCL_CALLS(SAME_CALL)
SAME_FUNCTION(const char *(nccl_result), ncclGetErrorString);
SAME_FUNCTION(const char *(nccl_comm), ncclGetLastError);

// A function that is newer than this nccl.h is not in it.
#define SINCE_21900(what) what
#define SINCE_22700(what) what
#define SINCE_22807(what) what
#if NCCL_VERSION_CODE >= 22902
#define SINCE_22902(what) what
#else
#define SINCE_22902(what)
#endif
#define SAME_EXTRA(member, name, since, arguments) SINCE_##since(SAME_FUNCTION(nccl_result arguments, name);)
NCCL_EXTRAS(SAME_EXTRA)
