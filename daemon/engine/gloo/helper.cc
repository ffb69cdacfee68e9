/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper process: one communicator of Gloo, which the daemon tells over its socket what to do. The main
 * thread listens to the daemon; each lane has a thread that connects it, and then exchanges one collective
 * after the other. The process is ended by being killed. It is never the one that ends a connection: whoever
 * notices a loss keeps its own connections, so that the others can tell who is lost.
 */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/gloo/errand.h"
#include "engine/gloo/fold.h"

namespace {

using Bytes = std::vector<char>;
using std::chrono::milliseconds;

/* Up to so many bytes of all nodes together each gets all inputs and folds them itself, in rank order: half
 * as many messages one after the other as in a ring, and the same result everywhere. */
const size_t kGathered = 64 << 10;

const auto kForEver = milliseconds(1000L * 60 * 60 * 24 * 30); /* Gloo's own time-outs end all connections */

/* ---- to the daemon ---- */

/* Packets are whole, whichever thread sends them. Without a daemon there is nothing left to do. */
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

/* The first one counts: what follows from a loss elsewhere says nothing new. */
void say_broken(uint32_t kind, const std::vector<uint32_t> &ranks, const std::string &text) {
        static std::mutex once;
        static bool said = false;
        std::lock_guard<std::mutex> lock(once);
        errand errand = {};

        if (said)
                return;
        said = true;
        errand.kind = kind;
        for (uint32_t rank : ranks)
                errand.nodes.rank[errand.nodes.n++] = rank;
        snprintf(errand.nodes.text, sizeof(errand.nodes.text), "%s", text.c_str());
        say(errand);
}

/* ---- memory of the daemon ---- */

struct Mapping {
        char *data;
        uint64_t bytes;
};

std::map<uint64_t, Mapping> mappings; /* the main thread's */

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
        size_t size = fold_size(errand.launch.dtype);

        if (at == mappings.end() || size == 0 || errand.launch.elements > at->second.bytes / size ||
            offset > at->second.bytes - errand.launch.elements * size)
                throw std::runtime_error("a piece does not lie in memory that is shared");
        return at->second.data + offset;
}

/* ---- a lane ---- */

/*
 * While there is one of these, new threads are batch threads, unless the administrator chose another policy.
 * Gloo's thread of a device asks again and again for the lock of a connection, without sleeping, while a lane
 * holds it. If it took the processor from that lane when it is woken, both would lose a whole time slice, for
 * each message. A batch thread waits until the lane sleeps.
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

struct Task {
        errand said;
        char *input, *output;
};

class Mesh : public gloo::Context {
      public:
        Mesh(int rank, int size, const std::string &address) : gloo::Context(rank, size) {
                gloo::transport::tcp::attr attr;

                BatchThreads batch;
                attr.hostname = address;
                device_ = gloo::transport::tcp::CreateDevice(attr);
                transportContext_ = device_->createContext(rank, size);
                transportContext_->setTimeout(kForEver);
        }

        /* Of the end of each connection that is here; nothing for the own rank. */
        std::vector<Bytes> addresses(milliseconds timeout) {
                std::vector<Bytes> all(static_cast<size_t>(size));

                transportContext_->setTimeout(timeout);
                for (int i = 0; i < size; i++)
                        if (i != rank)
                                all[static_cast<size_t>(i)] =
                                        transportContext_->createPair(i)->address().bytes();
                return all;
        }

        void connect(int peer, const Bytes &address) {
                transportContext_->getPair(peer)->connect(address);
        }

        void settle() {
                transportContext_->setTimeout(kForEver);
                setTimeout(kForEver);
        }

        /* A connection that has failed says so when it is asked for anything. What is asked for here never
         * comes, and lives as long as the process. */
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

class Lane {
      public:
        Lane(uint32_t number, const errand &build)
                : number_(number), build_(build), rank_(static_cast<int>(build.build.self)),
                  size_(static_cast<int>(build.build.n_nodes)) {}

        std::vector<Bytes> open() {
                mesh_ = std::make_shared<Mesh>(rank_, size_, build_.build.address);
                return mesh_->addresses(milliseconds(build_.build.timeout));
        }

        /* `address[i]`: of rank i's end of the connection with this one. */
        void start(std::vector<Bytes> address, void (*connected)()) {
                std::thread(&Lane::run, this, std::move(address), connected).detach();
        }

        void push(const Task &task) {
                std::lock_guard<std::mutex> lock(mutex_);

                tasks_.push_back(task);
                more_.notify_one();
        }

      private:
        void run(std::vector<Bytes> address, void (*connected)()) {
                for (int peer = 0; peer < size_; peer++) {
                        if (peer == rank_)
                                continue;
                        try {
                                mesh_->connect(peer, address[static_cast<size_t>(peer)]);
                        } catch (const std::exception &error) {
                                say_broken(ERRAND_BUILT, { static_cast<uint32_t>(peer) },
                                           "node rank " + std::to_string(peer) +
                                                   " cannot be reached: " + error.what());
                                return;
                        }
                }
                mesh_->settle();
                connected();
                try {
                        for (;;)
                                exchange(next());
                } catch (const std::exception &error) {
                        report(error.what());
                }
        }

        Task next() {
                std::unique_lock<std::mutex> lock(mutex_);

                more_.wait(lock, [this] { return !tasks_.empty(); });
                Task task = tasks_.front();
                tasks_.pop_front();
                return task;
        }

        void report(const std::string &what) {
                std::vector<uint32_t> lost;

                for (int peer = 0; peer < size_; peer++)
                        if (peer != rank_ && mesh_->is_lost(peer))
                                lost.push_back(static_cast<uint32_t>(peer));
                say_broken(ERRAND_BROKEN, lost, what);
        }

        void exchange(const Task &task) {
                errand done = {};

                done.kind = ERRAND_DONE;
                done.lane = number_;
                done.sequence = task.said.sequence;
                if (task.said.launch.payload != ERRAND_REDUCE)
                        vote(task, done.done.value);
                else if (task.said.launch.reduce == ENGINE_COPY)
                        copy(task);
                else
                        reduce(task);
                say(done);
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
        void gather(const Task &task, T *input, T *output, size_t elements, fold_fn fold) {
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
                size_t bytes = task.said.launch.elements * fold_size(task.said.launch.dtype);
                gloo::BroadcastOptions options(mesh_);

                if (task.said.launch.root == build_.build.self)
                        options.setInput(task.input, bytes);
                options.setOutput(task.output, bytes);
                options.setRoot(static_cast<int>(task.said.launch.root));
                finish(options, task);
                gloo::broadcast(options);
        }

        template <typename T> void reduce_as(const Task &task, fold_fn fold) {
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
                fold_fn fold = fold_find(task.said.launch.dtype, task.said.launch.reduce, nullptr);

                if (fold == nullptr)
                        throw std::runtime_error("there is no such reduction");
                switch (fold_size(task.said.launch.dtype)) {
                case 1: reduce_as<uint8_t>(task, fold); break;
                case 2: reduce_as<uint16_t>(task, fold); break;
                case 4: reduce_as<uint32_t>(task, fold); break;
                default: reduce_as<uint64_t>(task, fold); break;
                }
        }

        template <typename Options> void finish(Options &options, const Task &task) {
                options.setTag(static_cast<uint32_t>(task.said.sequence));
                options.setTimeout(kForEver);
        }

        const uint32_t number_;
        const errand build_;
        const int rank_, size_;
        std::shared_ptr<Mesh> mesh_;
        std::mutex mutex_;
        std::condition_variable more_;
        std::deque<Task> tasks_;
};

/* ---- the communicator ---- */

/* A connection whose other end is silent is given up by the kernel, and only that one. */
void watch_connections(unsigned silence) {
        int on = 1, every = 1, idle = 2, probes = static_cast<int>(silence / 1000) + 1;

        for (int fd = 0; fd < 65536; fd++) {
                int protocol = 0;
                socklen_t length = sizeof(protocol);

                if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) < 0 ||
                    protocol != IPPROTO_TCP)
                        continue;
                setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
                setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
        }
}

struct Head { /* of a table; then the addresses by lane and rank, each `size` bytes */
        uint32_t n_lanes, n_nodes, size;
};

struct Communicator {
        errand said;
        std::vector<std::unique_ptr<Lane>> lanes;
        std::vector<std::vector<std::vector<Bytes>>> learned; /* rank, lane, peer */
        uint32_t n_learned = 0;
        Head head = {};
};

Communicator comm;
std::mutex connecting;
uint32_t n_connected;

void on_connected() {
        std::lock_guard<std::mutex> lock(connecting);
        errand errand = {};

        if (++n_connected < comm.said.build.n_lanes)
                return;
        watch_connections(comm.said.build.silence);
        errand.kind = ERRAND_BUILT;
        say(errand);
}

void build(const errand &errand) {
        if (!comm.lanes.empty() || errand.build.n_lanes > ERRAND_LANES ||
            errand.build.n_nodes > ERRAND_NODES || errand.build.self >= errand.build.n_nodes)
                throw std::runtime_error("this is no communicator");
        comm.said = errand;
        comm.learned.resize(errand.build.n_nodes);
        comm.head.n_lanes = errand.build.n_lanes;
        comm.head.n_nodes = errand.build.n_nodes;
        std::string table;
        for (uint32_t i = 0; i < errand.build.n_lanes; i++) {
                comm.lanes.push_back(std::make_unique<Lane>(i, errand));
                std::vector<Bytes> all = comm.lanes.back()->open();
                for (const Bytes &address : all)
                        if (!address.empty())
                                comm.head.size = static_cast<uint32_t>(address.size());
                for (Bytes &address : all) {
                        address.resize(comm.head.size);
                        table.append(address.data(), address.size());
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
        for (uint32_t lane = 0; lane < comm.said.build.n_lanes; lane++) {
                std::vector<Bytes> address(comm.said.build.n_nodes);

                for (uint32_t rank = 0; rank < comm.said.build.n_nodes; rank++)
                        if (rank != comm.said.build.self)
                                address[rank] = comm.learned[rank][lane][comm.said.build.self];
                comm.lanes[lane]->start(std::move(address), on_connected);
        }
}

void learn(const errand &errand, const char *table, size_t bytes) {
        uint32_t rank = errand.learn.rank;
        size_t size = comm.head.size, wanted = sizeof(Head) + size * comm.head.n_lanes * comm.head.n_nodes;
        Head head;

        if (rank >= comm.learned.size() || rank == comm.said.build.self || !comm.learned[rank].empty())
                return;
        if (bytes >= sizeof(head))
                memcpy(&head, table, sizeof(head));
        if (bytes != wanted || memcmp(&head, &comm.head, sizeof(head)) != 0) {
                say_broken(ERRAND_BUILT, { rank },
                           "node rank " + std::to_string(rank) +
                                   " has sent addresses of another kind: it is of "
                                   "another release, or its Gloo is");
                return;
        }
        const char *at = table + sizeof(head);
        comm.learned[rank].resize(comm.head.n_lanes);
        for (auto &lane : comm.learned[rank])
                for (uint32_t peer = 0; peer < comm.head.n_nodes; peer++, at += size)
                        lane.emplace_back(at, at + size);
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

/* ---- from the daemon ---- */

void carry_out(const errand &errand, const char *more, size_t bytes, int fd) {
        switch (errand.kind) {
        case ERRAND_BUILD: build(errand); break;
        case ERRAND_LEARN: learn(errand, more, bytes); break;
        case ERRAND_MEMORY: map_memory(errand, fd); break;
        case ERRAND_FORGET: forget_memory(errand.memory); break;
        case ERRAND_LAUNCH: launch(errand); break;
        default: throw std::runtime_error("the daemon asks for something unknown");
        }
}

/* False: the daemon is gone. */
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
        ssize_t n = recvmsg(ERRAND_SOCKET, &message, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
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

/* A peer has sent what Gloo does not expect, on the thread of a device. */
[[noreturn]] void on_terminate() {
        std::string what = "unknown";

        try {
                if (std::current_exception())
                        std::rethrow_exception(std::current_exception());
        } catch (const std::exception &error) {
                what = error.what();
        } catch (...) {}
        say_broken(n_connected > 0 ? ERRAND_BROKEN : ERRAND_BUILT, {}, "Gloo has given up: " + what);
        _exit(EXIT_FAILURE);
}

} // namespace

int main() {
        std::vector<char> room(sizeof(errand) + ERRAND_TABLE);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        std::set_terminate(on_terminate);
        try {
                while (serve_one(room))
                        ;
        } catch (const std::exception &error) {
                say_broken(n_connected > 0 ? ERRAND_BROKEN : ERRAND_BUILT, {}, error.what());
                pause();
        }
        _exit(EXIT_SUCCESS); /* without ending anything in order: the lanes may be waiting for peers */
}
