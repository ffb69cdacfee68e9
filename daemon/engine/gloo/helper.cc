/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper process: one communicator of Gloo, which does what the daemon asks for over its socket. The main
 * thread listens to the daemon. Each lane has streams with connections of their own. Each stream has a thread
 * that makes its connections, and then exchanges one collective after the other. The process is ended by
 * being killed. It never ends a connection itself: a helper that notices a loss keeps its own connections, so
 * that the others can tell which node is lost.
 */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/gloo/errand.h"
#include "kernel/kernel.h"

namespace {

using Bytes = std::vector<char>;
using gloo::transport::tcp::Address;
using std::chrono::milliseconds;

/* Up to so many bytes of all nodes together, each node gets all inputs and folds them itself, in rank order.
 * That takes half as many messages one after the other as a ring, and gives the same result everywhere. */
const size_t kGathered = 64 << 10;

/*
 * The proof that the node on the other end of a connection has to show before the connection counts. Gloo
 * takes the first process that connects for the peer. These bytes are new for each connection, and come with
 * the addresses, from daemon to daemon, so that only the nodes of this communicator have them.
 */
using Proof = std::array<char, 16>;
const uint64_t kProofSlot = UINT64_MAX - 1; /* the slot of no collective */

/* A node shows its proof as soon as it has connected. After this time the log names connections that have
 * not. */
const auto kSuspicion = milliseconds(1000);

const auto kForEver = milliseconds(1000L * 60 * 60 * 24 * 30); /* Gloo's own time-outs end all connections */

/* ---- words ---- */

/* Whether Gloo prints ports as they are in memory, in network order. */
bool exchanges_ports() {
        sockaddr_storage address = {};
        auto *in = reinterpret_cast<sockaddr_in *>(&address);

        in->sin_family = AF_INET;
        in->sin_port = htons(1);
        return Address(address).str().find("]:1") == std::string::npos;
}

/* Returns Gloo's text with the true port in each "[ADDRESS]:PORT". */
std::string with_true_ports(const std::string &text) {
        static const bool exchanged = exchanges_ports();
        std::string result;
        size_t from = 0, at;

        while (exchanged && (at = text.find("]:", from)) != std::string::npos) {
                size_t begin = at + 2,
                       end = std::min(text.find_first_not_of("0123456789", begin), text.size());

                result.append(text, from, begin - from);
                if (end > begin && end - begin <= 5)
                        result += std::to_string(
                                ntohs(static_cast<uint16_t>(std::stoul(text.substr(begin, end - begin)))));
                from = end;
        }
        return result.append(text, from, std::string::npos);
}

/* ---- to the daemon ---- */

/* Sends a packet to the daemon. Packets are whole, whichever thread sends them. Without a daemon there is
 * nothing left to do. */
void say(const errand &errand, const void *more = nullptr, size_t bytes = 0) {
        iovec parts[2] = { { const_cast<struct errand *>(&errand), sizeof(errand) },
                           { const_cast<void *>(more), bytes } };
        msghdr message = {};

        message.msg_iov = parts;
        message.msg_iovlen = bytes > 0 ? 2 : 1;
        while (sendmsg(ERRAND_SOCKET, &message, MSG_NOSIGNAL) < 0)
                if (errno != EINTR)
                        _exit(EXIT_FAILURE);
}

void say_text(uint32_t kind, const std::vector<uint32_t> &ranks, const std::string &text) {
        errand errand = {};

        errand.kind = kind;
        for (uint32_t rank : ranks)
                errand.nodes.rank[errand.nodes.n++] = rank;
        snprintf(errand.nodes.text, sizeof(errand.nodes.text), "%s", with_true_ports(text).c_str());
        say(errand);
}

/* Reports a failure. The first one counts: failures that follow from a loss elsewhere say nothing new. */
void say_broken(uint32_t kind, const std::vector<uint32_t> &ranks, const std::string &text) {
        static std::mutex once;
        static bool said = false;
        std::lock_guard<std::mutex> lock(once);

        if (!said)
                say_text(kind, ranks, text);
        said = true;
}

/* ---- memory of the daemon ---- */

struct Mapping {
        char *data;
        uint64_t bytes;
};

std::map<uint64_t, Mapping> mappings; /* for the main thread alone */

void map_memory(const errand &errand, int fd) {
        void *data =
                fd >= 0 ? mmap(nullptr, errand.memory_of.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;

        if (fd >= 0)
                close(fd);
        if (data == MAP_FAILED)
                throw std::runtime_error(std::string("staging cannot be mapped: ") + strerror(errno));
        mappings[errand.memory] = { static_cast<char *>(data), errand.memory_of.bytes };
}

void forget_memory(uint64_t id) {
        auto at = mappings.find(id);

        if (at == mappings.end())
                return;
        munmap(at->second.data, at->second.bytes);
        mappings.erase(at);
}

char *find_range(const errand &errand, uint64_t offset) {
        auto at = mappings.find(errand.memory);
        size_t size = kernel_size(errand.launch.dtype);

        if (at == mappings.end() || size == 0 || errand.launch.elements > at->second.bytes / size ||
            offset > at->second.bytes - errand.launch.elements * size)
                throw std::runtime_error("a piece does not lie in memory that is shared");
        return at->second.data + offset;
}

/* ---- folds ---- */

/* result[i] = a[i] op b[i] for n elements; result may be a. */
using Fold = gloo::AllreduceOptions::Func;

/* Finds the kernel for a reduction of a type that there is. */
kernel_fn find_fold(uint32_t dtype, uint32_t reduce) {
        static const kernel_set *const set = kernel_select();
        kernel_op op = KERNEL_ADD;

        switch (reduce) {
        case ENGINE_SUM: break;
        case ENGINE_MIN: op = KERNEL_MIN; break;
        case ENGINE_MAX: op = KERNEL_MAX; break;
        case ENGINE_PROD: op = KERNEL_MUL; break;
        default: throw std::runtime_error("there is no such reduction");
        }
        if (set == nullptr)
                throw std::runtime_error("GRADSYNC_SIMD names no set of kernels that this CPU runs");
        return set->fold[dtype][op];
}

/* ---- a lane ---- */

struct Task {
        errand said;
        char *input, *output;
};

bool is_payload(const Task &task) {
        return task.said.launch.payload == ERRAND_REDUCE;
}

/* Whether two payloads write to the same place, as payloads may whose results are not used. */
bool overlap(const Task &a, const Task &b) {
        auto end = [](const Task &task) {
                return task.output + task.said.launch.elements * kernel_size(task.said.launch.dtype);
        };

        return is_payload(a) && is_payload(b) && a.output < end(b) && b.output < end(a);
}

/*
 * The order of a lane. Its collectives go to its streams in turn, the same way on all nodes. As many as there
 * are streams are under way, which follow one another. They may end in any order, and are reported in the
 * order of the lane.
 */
class Lane {
      public:
        Lane(uint32_t number, uint32_t n_streams) : number_(number), turn_(n_streams) {}

        void push(const Task &task) {
                std::lock_guard<std::mutex> lock(mutex_);

                waiting_.push_back(task);
                wake_next();
        }

        /* Waits for the next collective of that stream. */
        Task take(uint32_t stream) {
                std::unique_lock<std::mutex> lock(mutex_);

                turn_[stream].wait(lock, [this, stream] { return may_begin(stream); });
                Task task = waiting_.front();
                waiting_.pop_front();
                begun_.push_back({ task, false, {} });
                wake_next();
                return task;
        }

        void end(const Task &task, const uint64_t *value) {
                std::lock_guard<std::mutex> lock(mutex_);

                for (Begun &begun : begun_)
                        if (begun.task.said.sequence == task.said.sequence) {
                                begun.ended = true;
                                memcpy(begun.value, value, sizeof(begun.value));
                        }
                for (; !begun_.empty() && begun_.front().ended; begun_.pop_front())
                        tell(begun_.front());
                wake_next();
        }

      private:
        struct Begun {
                Task task;
                bool ended;
                uint64_t value[ERRAND_VALUES];
        };

        bool may_begin(uint32_t stream) const {
                if (waiting_.empty() || stream_of(waiting_.front()) != stream ||
                    begun_.size() == turn_.size())
                        return false;
                for (const Begun &begun : begun_)
                        if (!begun.ended && overlap(begun.task, waiting_.front()))
                                return false;
                return true;
        }

        size_t stream_of(const Task &task) const {
                return task.said.sequence % turn_.size();
        }

        void wake_next() {
                if (!waiting_.empty())
                        turn_[stream_of(waiting_.front())].notify_one();
        }

        void tell(const Begun &begun) const {
                errand done = {};

                done.kind = ERRAND_DONE;
                done.lane = number_;
                done.sequence = begun.task.said.sequence;
                memcpy(done.done.value, begun.value, sizeof(done.done.value));
                say(done);
        }

        const uint32_t number_;
        std::mutex mutex_;
        std::vector<std::condition_variable> turn_; /* by stream */
        std::deque<Task> waiting_;
        std::deque<Begun> begun_;
};

/* ---- a stream ---- */

/*
 * While there is an object of this class, new threads are batch threads, unless the administrator chose
 * another policy. Gloo's thread of a device asks again and again for the lock of a connection, without
 * sleeping, while a stream holds it. If that thread took the processor from the stream when it is woken, both
 * would lose a whole time slice, for each message. A batch thread waits until the stream sleeps.
 */
class BatchThreads {
      public:
        BatchThreads() : ours_(sched_getscheduler(0) == SCHED_OTHER) {
                schedule(SCHED_BATCH);
        }
        ~BatchThreads() {
                schedule(SCHED_OTHER);
        }
        BatchThreads(const BatchThreads &) = delete;
        BatchThreads &operator=(const BatchThreads &) = delete;

      private:
        void schedule(int policy) const {
                sched_param param = {};

                if (ours_)
                        sched_setscheduler(0, policy, &param); /* a system that forbids it is only slower */
        }

        const bool ours_;
};

bool is_tcp(int fd) {
        int protocol = 0;
        socklen_t length = sizeof(protocol);

        return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP;
}

/*
 * The ports at which this node awaits others. Each of these ports takes one connection: if a stranger makes
 * it, the node that is awaited there is refused. Ports are as Gloo prints them; say_text() corrects them.
 */
class Ports {
      public:
        void open(const std::string &at) {
                std::lock_guard<std::mutex> lock(mutex_);

                awaited_.insert(at);
        }

        /* Forgets the port: the awaited node is there. */
        void close(const std::string &at) {
                std::lock_guard<std::mutex> lock(mutex_);

                awaited_.erase(at);
        }

        /* Returns the other end of the connection that has come to that port; "" if there is none any
         * more. */
        static std::string find_visitor(const std::string &at) {
                for (const auto &visit : visits())
                        if (visit.first == at)
                                return visit.second;
                return "";
        }

        /* Names in the log the connections that may be strangers'. */
        void note_visitors() {
                std::lock_guard<std::mutex> lock(mutex_);
                std::string list;

                for (const auto &visit : visits())
                        if (awaited_.count(visit.first) > 0)
                                list += (list.empty() ? "" : ", ") + visit.second + " to " + visit.first;
                if (!list.empty())
                        say_text(
                                ERRAND_NOTE, {},
                                "strangers have to be kept away from its ports: no node of the job has shown "
                                "that it has connected from " +
                                        list);
        }

      private:
        static std::vector<std::pair<std::string, std::string>> visits() {
                std::vector<std::pair<std::string, std::string>> all;

                for (int fd = 0; fd < 65536; fd++) {
                        sockaddr_storage own = {}, peer = {};
                        socklen_t length = sizeof(own), peer_length = sizeof(peer);

                        if (is_tcp(fd) && getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length) == 0 &&
                            getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &peer_length) == 0)
                                all.emplace_back(Address(own).str(), Address(peer).str());
                }
                return all;
        }

        std::mutex mutex_;
        std::set<std::string> awaited_;
};

Ports ports;

class Mesh : public gloo::Context {
      public:
        Mesh(int rank, int size, const std::string &address) : gloo::Context(rank, size) {
                gloo::transport::tcp::attr attr;

                BatchThreads batch;
                attr.hostname = address;
                device_ = gloo::transport::tcp::CreateDevice(attr);
                transportContext_ = device_->createContext(rank, size);
                transportContext_->setTimeout(kForEver); /* watch_deadline() has the deadline */
                setTimeout(kForEver);
        }

        /* Returns the address of this end of each connection; it is empty for the own rank. */
        std::vector<Bytes> addresses() {
                std::vector<Bytes> all(static_cast<size_t>(size));

                for (int i = 0; i < size; i++)
                        if (i != rank)
                                all[static_cast<size_t>(i)] =
                                        transportContext_->createPair(i)->address().bytes();
                return all;
        }

        void connect(int peer, const Bytes &address) {
                transportContext_->getPair(peer)->connect(address);
        }

        /* Exchanges proofs with the peer. */
        void greet(int peer, Proof shown, const Proof &wanted) {
                Proof seen = {};
                auto to = transportContext_->createUnboundBuffer(shown.data(), shown.size());
                auto from = transportContext_->createUnboundBuffer(seen.data(), seen.size());

                from->recv(peer, kProofSlot);
                to->send(peer, kProofSlot);
                from->waitRecv(kForEver);
                if (seen != wanted)
                        throw std::runtime_error("something else has answered its connection");
                to->waitSend(kForEver);
        }

        /* Whether the connection with a peer is lost: it shows that when it is asked to receive. The bytes
         * asked for here never come, and the buffer lives as long as the process. */
        bool is_lost(int peer) {
                try {
                        auto *buffer =
                                transportContext_->createUnboundBuffer(&nothing_, sizeof(nothing_)).release();

                        transportContext_->getPair(peer)->recv(buffer, UINT64_MAX);
                        return false;
                } catch (const std::exception &) {
                        return true;
                }
        }

      private:
        char nothing_ = 0;
};

class Stream {
      public:
        Stream(uint32_t number, Lane &lane, const errand &build)
                : number_(number), lane_(lane), build_(build), rank_(static_cast<int>(build.build.self)),
                  size_(static_cast<int>(build.build.n_nodes)) {}

        std::vector<Bytes> open() {
                mesh_ = std::make_shared<Mesh>(rank_, size_, build_.build.address);
                wanted_.resize(static_cast<size_t>(size_));
                for (Proof &proof : wanted_)
                        if (getrandom(proof.data(), proof.size(), 0) != static_cast<ssize_t>(proof.size()))
                                throw std::runtime_error("there are no random bytes");
                own_ = mesh_->addresses();
                for (const Bytes &address : own_)
                        if (!address.empty())
                                ports.open(Address(address).str());
                return own_;
        }

        /* Returns the proof that the node of that rank has to show. */
        const Proof &wanted(size_t rank) const {
                return wanted_[rank];
        }

        /* `address[i]` is that of rank i's end of the connection with this one, `proof[i]` the proof that it
         * wants to see. */
        void start(std::vector<Bytes> address, std::vector<Proof> proof, void (*connected)()) {
                std::thread(&Stream::run, this, std::move(address), std::move(proof), connected).detach();
        }

        bool has_met(uint32_t rank) const {
                return met_[rank];
        }

      private:
        void meet(int peer, const Bytes &address, const Proof &proof) {
                std::string own = Address(own_[static_cast<size_t>(peer)]).str();

                try {
                        mesh_->connect(peer, address);
                        mesh_->greet(peer, proof, wanted_[static_cast<size_t>(peer)]);
                        met_[static_cast<size_t>(peer)] = true;
                        ports.close(own);
                } catch (const std::exception &error) {
                        report_unmet(peer, Address(address).str(), own, error.what());
                }
        }

        static void report_unmet(int peer, const std::string &its, const std::string &own,
                                 const std::string &what) {
                std::string visitor = Ports::find_visitor(own);

                if (visitor.empty()) /* the other node may know why, and its report has to come first */
                        std::this_thread::sleep_for(2 * kSuspicion);
                else
                        visitor = ", where " + visitor + " has connected";
                say_broken(
                        ERRAND_BUILT, { static_cast<uint32_t>(peer) },
                        "it cannot be reached: " + what + "; it listened at " + its + ", and this node at " +
                                own + visitor +
                                ": no firewall may be between them, and no stranger may come to these ports "
                                "first");
        }

        /* Meets all peers at once, so that a peer that does not come holds up no other, and it is known which
         * peer that is. */
        bool meet_all(const std::vector<Bytes> &address, const std::vector<Proof> &proof) {
                std::vector<std::thread> meetings;

                for (int peer = 0; peer < size_; peer++)
                        if (peer != rank_)
                                meetings.emplace_back(&Stream::meet, this, peer,
                                                      std::cref(address[static_cast<size_t>(peer)]),
                                                      std::cref(proof[static_cast<size_t>(peer)]));
                for (std::thread &meeting : meetings)
                        meeting.join();
                for (uint32_t peer = 0; peer < build_.build.n_nodes; peer++)
                        if (peer != build_.build.self && !met_[peer])
                                return false;
                return true;
        }

        void run(const std::vector<Bytes> &address, const std::vector<Proof> &proof, void (*connected)()) {
                if (!meet_all(address, proof))
                        return;
                connected();
                try {
                        for (;;)
                                exchange(lane_.take(number_));
                } catch (const std::exception &error) {
                        report(error.what());
                }
        }

        void report(const std::string &what) {
                std::vector<uint32_t> lost;

                for (int peer = 0; peer < size_; peer++)
                        if (peer != rank_ && mesh_->is_lost(peer))
                                lost.push_back(static_cast<uint32_t>(peer));
                say_broken(ERRAND_BROKEN, lost, what);
        }

        void exchange(const Task &task) {
                uint64_t value[ERRAND_VALUES] = {};

                if (!is_payload(task))
                        vote(task, value);
                else if (task.said.launch.reduce == ENGINE_COPY)
                        copy(task);
                else
                        reduce(task);
                lane_.end(task, value);
        }

        static void least(void *to, const void *a, const void *b, size_t n) {
                const uint64_t *x = static_cast<const uint64_t *>(a), *y = static_cast<const uint64_t *>(b);

                for (size_t i = 0; i < n; i++)
                        static_cast<uint64_t *>(to)[i] = x[i] < y[i] ? x[i] : y[i];
        }

        void vote(const Task &task, uint64_t *result) {
                uint64_t own[ERRAND_VALUES] = {};

                if (task.said.launch.payload == ERRAND_VOTE)
                        memcpy(own, task.said.launch.value, sizeof(own));
                gather(task, own, result, ERRAND_VALUES, least);
        }

        template <typename T>
        void gather(const Task &task, T *input, T *output, size_t elements, const Fold &fold) {
                std::vector<T> all(elements * static_cast<size_t>(size_));
                gloo::AllgatherOptions options(mesh_);

                options.setInput(input, elements);
                options.setOutput(all.data(), all.size());
                finish(options, task);
                gloo::allgather(options);
                memcpy(output, all.data(), elements * sizeof(T));
                for (size_t rank = 1; rank < static_cast<size_t>(size_); rank++)
                        fold(output, output, &all[rank * elements], elements);
        }

        void copy(const Task &task) {
                size_t bytes = task.said.launch.elements * kernel_size(task.said.launch.dtype);
                gloo::BroadcastOptions options(mesh_);

                if (task.said.launch.root == build_.build.self)
                        options.setInput(task.input, bytes);
                options.setOutput(task.output, bytes);
                options.setRoot(static_cast<int>(task.said.launch.root));
                finish(options, task);
                gloo::broadcast(options);
        }

        template <typename T> void reduce_as(const Task &task, const Fold &fold) {
                T *input = reinterpret_cast<T *>(task.input), *output = reinterpret_cast<T *>(task.output);
                size_t elements = task.said.launch.elements;

                if (elements > 0 && elements <= kGathered / sizeof(T) / static_cast<size_t>(size_)) {
                        gather(task, input, output, elements, fold);
                        return;
                }
                gloo::AllreduceOptions options(mesh_);
                if (input != output)
                        options.setInput(input, elements);
                options.setOutput(output, elements);
                options.setReduceFunction(fold);
                finish(options, task);
                gloo::allreduce(options);
        }

        void reduce(const Task &task) {
                size_t size = kernel_size(task.said.launch.dtype);
                kernel_fn kernel = find_fold(task.said.launch.dtype, task.said.launch.reduce);
                Fold fold = [kernel, size](void *result, const void *a, const void *b, size_t n) {
                        kernel_fold(kernel, size, result, a, b, n);
                };

                switch (size) {
                case 1: reduce_as<uint8_t>(task, fold); break;
                case 2: reduce_as<uint16_t>(task, fold); break;
                case 4: reduce_as<uint32_t>(task, fold); break;
                default: reduce_as<uint64_t>(task, fold); break;
                }
        }

        /* Returns a tag by which nodes that launch different collectives under one number wait for each
         * other, and never mix them up. Gloo itself notices only different sizes. */
        static uint32_t tag_of(const Task &task) {
                uint32_t shape = is_payload(task);

                if (shape != 0)
                        shape |= task.said.launch.dtype << 1 | task.said.launch.reduce << 5 |
                                 task.said.launch.root << 8;
                return shape << 16 | static_cast<uint32_t>(task.said.sequence & 0xffff);
        }

        template <typename Options> void finish(Options &options, const Task &task) {
                options.setTag(tag_of(task));
                options.setTimeout(kForEver);
        }

        const uint32_t number_; /* in its lane */
        Lane &lane_;
        const errand build_;
        const int rank_, size_;
        std::shared_ptr<Mesh> mesh_;
        std::vector<Bytes> own_;    /* by rank: where this node awaits that rank, unless it connects itself */
        std::vector<Proof> wanted_; /* by rank */
        std::array<std::atomic<bool>, ERRAND_NODES> met_ = {};
};

/* ---- the communicator ---- */

/* Makes the kernel give up a connection whose other end is silent, and only that one. */
void watch_connections(unsigned silence) {
        int on = 1, every = 1, idle = 2, probes = static_cast<int>(silence / 1000) + 1;

        for (int fd = 0; fd < 65536; fd++) {
                if (!is_tcp(fd))
                        continue;
                setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
                setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
        }
}

/* The head of a table. Then follow, by stream and rank, an address of `size` bytes and the proof that the
 * rank has to show. */
struct Head {
        uint32_t n_streams, n_nodes, size, proof;
};

struct Entry {
        Bytes address;
        Proof proof;
};

struct Communicator {
        errand said;
        std::vector<std::unique_ptr<Lane>> lanes;
        std::vector<std::unique_ptr<Stream>> streams;         /* streams of all lanes, lane by lane */
        std::vector<std::vector<std::vector<Entry>>> learned; /* by rank, stream, peer */
        uint32_t n_learned = 0;
        Head head = {};
        using Time = std::chrono::steady_clock::time_point;
        Time deadline;                /* for all connections */
        Time suspicion = Time::max(); /* when the log names strangers */
};

Communicator comm;
std::mutex connecting; /* for the following two */
uint32_t n_connected;
bool given_up;

void on_connected() {
        std::lock_guard<std::mutex> lock(connecting);
        errand errand = {};

        if (++n_connected < comm.streams.size() || given_up)
                return;
        watch_connections(comm.said.build.silence);
        errand.kind = ERRAND_BUILT;
        say(errand);
}

void build(const errand &errand) {
        if (!comm.lanes.empty() || errand.build.n_lanes > ERRAND_LANES ||
            errand.build.n_nodes > ERRAND_NODES || errand.build.self >= errand.build.n_nodes ||
            errand.build.n_streams == 0 || errand.build.n_streams > ERRAND_STREAMS)
                throw std::runtime_error("this is no communicator");
        comm.said = errand;
        comm.learned.resize(errand.build.n_nodes);
        comm.head.n_streams = errand.build.n_lanes * errand.build.n_streams;
        comm.head.n_nodes = errand.build.n_nodes;
        comm.head.proof = sizeof(Proof);
        comm.deadline = std::chrono::steady_clock::now() + milliseconds(errand.build.timeout);
        std::string table;
        for (uint32_t i = 0; i < comm.head.n_streams; i++) {
                uint32_t n = errand.build.n_streams;

                if (i % n == 0)
                        comm.lanes.push_back(std::make_unique<Lane>(i / n, n));
                comm.streams.push_back(std::make_unique<Stream>(i % n, *comm.lanes.back(), errand));
                std::vector<Bytes> all = comm.streams.back()->open();
                for (const Bytes &address : all)
                        if (!address.empty())
                                comm.head.size = static_cast<uint32_t>(address.size());
                for (size_t rank = 0; rank < all.size(); rank++) {
                        const Proof &proof = comm.streams.back()->wanted(rank);

                        all[rank].resize(comm.head.size);
                        table.append(all[rank].data(), all[rank].size());
                        table.append(proof.data(), proof.size());
                }
        }
        table.insert(0, reinterpret_cast<const char *>(&comm.head), sizeof(comm.head));
        if (table.size() > ERRAND_TABLE)
                throw std::runtime_error("the addresses of this node take too many bytes");
        struct errand publish = {};
        publish.kind = ERRAND_PUBLISH;
        publish.publish.bytes = static_cast<uint32_t>(table.size());
        say(publish, table.data(), table.size());
}

void start() {
        comm.suspicion = std::chrono::steady_clock::now() + kSuspicion;
        for (uint32_t stream = 0; stream < comm.streams.size(); stream++) {
                std::vector<Bytes> address(comm.said.build.n_nodes);
                std::vector<Proof> proof(comm.said.build.n_nodes);

                for (uint32_t rank = 0; rank < comm.said.build.n_nodes; rank++)
                        if (rank != comm.said.build.self) {
                                const Entry &entry = comm.learned[rank][stream][comm.said.build.self];

                                address[rank] = entry.address;
                                proof[rank] = entry.proof;
                        }
                comm.streams[stream]->start(std::move(address), std::move(proof), on_connected);
        }
}

void learn(const errand &errand, const char *table, size_t bytes) {
        uint32_t rank = errand.learn.rank;
        size_t size = comm.head.size, entry = size + sizeof(Proof);
        size_t wanted = sizeof(Head) + entry * comm.head.n_streams * comm.head.n_nodes;
        Head head;

        if (rank >= comm.learned.size() || rank == comm.said.build.self || !comm.learned[rank].empty())
                return;
        if (bytes >= sizeof(head))
                memcpy(&head, table, sizeof(head));
        if (bytes != wanted || memcmp(&head, &comm.head, sizeof(head)) != 0) {
                say_broken(ERRAND_BUILT, { rank },
                           "it has sent addresses of another kind: it is of another release, or its Gloo "
                           "is");
                return;
        }
        const char *at = table + sizeof(head);
        comm.learned[rank].resize(comm.head.n_streams);
        for (auto &stream : comm.learned[rank])
                for (uint32_t peer = 0; peer < comm.head.n_nodes; peer++, at += entry) {
                        Entry from = { Bytes(at, at + size), {} };

                        memcpy(from.proof.data(), at + size, sizeof(Proof));
                        stream.push_back(std::move(from));
                }
        if (++comm.n_learned + 1 == comm.head.n_nodes)
                start();
}

void launch(const errand &errand) {
        Task task = { errand, nullptr, nullptr };

        if (errand.lane >= comm.lanes.size())
                throw std::runtime_error("there is no such lane");
        if (errand.launch.payload == ERRAND_REDUCE) {
                task.input = find_range(errand, errand.launch.input);
                task.output = find_range(errand, errand.launch.output);
        }
        comm.lanes[errand.lane]->push(task);
}

/* Returns the nodes that have not said where they listen. If all have, returns the nodes with which
 * connections are not made yet. */
std::vector<uint32_t> missing_nodes() {
        std::vector<bool> missing(comm.said.build.n_nodes);
        bool silent = comm.n_learned + 1 < comm.said.build.n_nodes;
        std::vector<uint32_t> ranks;

        for (uint32_t rank = 0; rank < comm.said.build.n_nodes && silent; rank++)
                missing[rank] = rank != comm.said.build.self && comm.learned[rank].empty();
        for (const auto &stream : comm.streams)
                for (uint32_t rank = 0; rank < comm.said.build.n_nodes && !silent; rank++)
                        missing[rank] = missing[rank] || !stream->has_met(rank);
        for (uint32_t rank = 0; rank < comm.said.build.n_nodes; rank++)
                if (missing[rank] && rank != comm.said.build.self)
                        ranks.push_back(rank);
        return ranks;
}

/* Waits until the daemon has said something. Gives up a communicator that is not made in time. */
void watch_deadline() {
        pollfd socket = { ERRAND_SOCKET, POLLIN, 0 };
        std::unique_lock<std::mutex> lock(connecting);
        bool bounded = n_connected < comm.streams.size() && !given_up;
        auto now = std::chrono::steady_clock::now();

        if (bounded && now >= std::min(comm.suspicion, comm.deadline)) {
                ports.note_visitors();
                comm.suspicion = Communicator::Time::max();
        }
        if (bounded && now >= comm.deadline) {
                given_up = true;
                say_broken(ERRAND_BUILT, missing_nodes(),
                           comm.n_learned + 1 < comm.said.build.n_nodes
                                   ? "it has not said in time where it is reached"
                                   : "its connections were not made in time");
                bounded = false;
        }
        lock.unlock();
        auto left = std::chrono::duration_cast<milliseconds>(std::min(comm.deadline, comm.suspicion) - now);
        poll(&socket, 1, bounded ? static_cast<int>(left.count()) + 1 : -1);
}

/* ---- from the daemon ---- */

void answer() {
        errand errand = {};

        errand.kind = ERRAND_ANSWER;
        say(errand);
}

void carry_out(const errand &errand, const char *more, size_t bytes, int fd) {
        switch (errand.kind) {
        case ERRAND_BUILD: build(errand); break;
        case ERRAND_LEARN: learn(errand, more, bytes); break;
        case ERRAND_MEMORY: map_memory(errand, fd); break;
        case ERRAND_FORGET: forget_memory(errand.memory); break;
        case ERRAND_LAUNCH: launch(errand); break;
        case ERRAND_ASK: answer(); break;
        default: throw std::runtime_error("the daemon asks for something unknown");
        }
}

/* Returns false if the daemon is gone. */
bool serve_one(std::vector<char> &room) {
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        iovec part = { room.data(), room.size() };
        msghdr message = {};
        errand errand;
        int fd = -1;

        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        watch_deadline();
        ssize_t n = recvmsg(ERRAND_SOCKET, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return true;
        if (n < static_cast<ssize_t>(sizeof(errand)))
                return false;
        const cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header != nullptr && header->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        memcpy(&errand, room.data(), sizeof(errand));
        carry_out(errand, room.data() + sizeof(errand), static_cast<size_t>(n) - sizeof(errand), fd);
        return true;
}

/* Reports that a peer has sent what Gloo does not expect, on the thread of a device. */
[[noreturn]] void on_terminate() {
        std::string what = "unknown";

        try {
                if (std::current_exception())
                        std::rethrow_exception(std::current_exception());
        } catch (const std::exception &error) {
                what = error.what();
        } catch (...) {}
        ports.note_visitors();
        say_broken(n_connected > 0 ? ERRAND_BROKEN : ERRAND_BUILT, {}, "it has given up: " + what);
        _exit(EXIT_FAILURE);
}

} // namespace

int main() {
        std::vector<char> room(sizeof(errand) + ERRAND_TABLE);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        /* A signal for the daemon may reach all of its processes. It is ignored, because the daemon still has
         * steps to end. */
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        std::set_terminate(on_terminate);
        try {
                while (serve_one(room))
                        ;
        } catch (const std::exception &error) {
                say_broken(n_connected > 0 ? ERRAND_BROKEN : ERRAND_BUILT, {}, error.what());
                pause();
        }
        _exit(EXIT_SUCCESS); /* without an orderly end: the streams may be waiting for peers */
}
