// SPDX-License-Identifier: Apache-2.0
//
// Gloo's side of the benchmark: its ring over TCP, on the loopback interface or at the address that is named,
// one process per member. It offers several settings of the ring ("use N"); the driver tries them for each
// size and keeps the fastest.

#include <gloo/allreduce.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "control.h"

namespace {

enum class Style { kOptions, kRing, kRingChunked };

struct Setting {
        const char *name;
        Style style;
        size_t segment; // largest single transfer of the options style; 0: Gloo's default
        bool sync;      // the calling thread works the sockets itself, polling
};

const Setting kSettings[] = {
        { "ring chunked", Style::kRingChunked, 0, false },
        { "ring, segments of 1 MiB", Style::kOptions, 0, false },
        { "ring, segments of 4 MiB", Style::kOptions, 4 << 20, false },
        { "ring, segments of 256 KiB", Style::kOptions, 256 << 10, false },
        { "ring whole", Style::kRing, 0, false },
        { "ring chunked, polling", Style::kRingChunked, 0, true },
};
const unsigned int kSettingCount = sizeof(kSettings) / sizeof(kSettings[0]);

class Peer {
      public:
        Peer(int rank, int world, const char *store, const char *gate, const char *address)
                : rank_(rank), world_(world), crowded_(world > sysconf(_SC_NPROCESSORS_ONLN)),
                  gate_(gate_open(gate)) {
                gloo::transport::tcp::attr attr;

                attr.hostname = address;
                device_ = gloo::transport::tcp::CreateDevice(attr);
                async_ = connect(store, "async");
                sync_ = connect(store, "sync");
                for (int i = 0; i < world; i++)
                        if (i != rank)
                                sync_->getPair(i)->setSync(true, !crowded_);
        }

        ~Peer() {
                release();
        }

        void prepare(size_t bytes, unsigned int count) {
                release();
                bytes_ = bytes;
                for (unsigned int i = 0; i < count; i++)
                        buffers_.push_back(bench_buffer(bytes, 0, false));
        }

        void use(const Setting &setting) {
                const float expected = world_ > 1 ? 2.0f : 3.0f;

                setting_ = &setting;
                algorithms_.clear();
                if (setting.style != Style::kOptions)
                        for (float *buffer : buffers_)
                                algorithms_.push_back(makeAlgorithm(buffer));
                fill(buffers_[0], rank_ == 0 ? 3.0f : rank_ == 1 ? -1.0f : 0.0f);
                next_ = 0;
                allreduce();
                if (!bench_check(buffers_[0], elements(), expected))
                        bench_die("gloo (%s) gave a wrong sum", setting.name);
                // 1, -1, 0, 0 …: sums stay finite however often they are taken
                for (float *buffer : buffers_)
                        fill(buffer, rank_ == 0 ? 1.0f : rank_ == 1 ? -1.0f : 0.0f);
        }

        struct gate *gate() const {
                return gate_;
        }

        void release() {
                algorithms_.clear();
                for (float *buffer : buffers_)
                        bench_buffer_free(buffer, bytes_);
                buffers_.clear();
        }

        void allreduce() {
                if (setting_->style == Style::kOptions)
                        allreduceOptions();
                else
                        algorithms_[next_]->run();
                next_ = (next_ + 1) % buffers_.size();
        }

      private:
        std::shared_ptr<gloo::rendezvous::Context> connect(const char *path, const char *prefix) {
                gloo::rendezvous::FileStore file(path);
                gloo::rendezvous::PrefixStore store(prefix, file);
                auto context = std::make_shared<gloo::rendezvous::Context>(rank_, world_);

                context->setTimeout(std::chrono::minutes(4)); // TCP over loopback can stall for a long time
                context->connectFullMesh(store, device_);
                return context;
        }

        size_t elements() const {
                return bytes_ / sizeof(float);
        }

        void fill(float *buffer, float value) {
                for (size_t i = 0; i < elements(); i++)
                        buffer[i] = value;
        }

        std::unique_ptr<gloo::Algorithm> makeAlgorithm(float *buffer) {
                std::shared_ptr<gloo::Context> context = setting_->sync ? sync_ : async_;
                std::vector<float *> one{ buffer };

                if (setting_->style == Style::kRing)
                        return std::unique_ptr<gloo::Algorithm>(
                                new gloo::AllreduceRing<float>(context, one, static_cast<int>(elements())));
                return std::unique_ptr<gloo::Algorithm>(
                        new gloo::AllreduceRingChunked<float>(context, one, static_cast<int>(elements())));
        }

        void allreduceOptions() {
                gloo::AllreduceOptions options(async_);

                options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
                options.setOutput(buffers_[next_], elements());
                options.setReduceFunction([](void *out, const void *a, const void *b, size_t n) {
                        gloo::sum<float>(out, a, b, n);
                });
                if (setting_->segment)
                        options.setMaxSegmentSize(setting_->segment);
                options.setTag(tag_++ & 0xffff);
                gloo::allreduce(options);
        }

        const int rank_, world_;
        const bool crowded_;
        struct gate *gate_;
        std::shared_ptr<gloo::transport::Device> device_;
        std::shared_ptr<gloo::rendezvous::Context> async_, sync_;
        size_t bytes_ = 0, next_ = 0;
        uint32_t tag_ = 0;
        std::vector<float *> buffers_;
        std::vector<std::unique_ptr<gloo::Algorithm>> algorithms_;
        const Setting *setting_ = &kSettings[0];
};

void step(void *data) {
        static_cast<Peer *>(data)->allreduce();
}

void release(void *data) {
        static_cast<Peer *>(data)->release();
}

bool obey(void *data, struct control *c, const char *line) {
        Peer &peer = *static_cast<Peer *>(data);
        size_t bytes;
        unsigned int n;

        if (std::sscanf(line, "prepare %zu %u", &bytes, &n) == 2) {
                peer.prepare(bytes, n);
                control_reply(c, "ready %u", kSettingCount);
        } else if (std::sscanf(line, "use %u", &n) == 1 && n < kSettingCount) {
                peer.use(kSettings[n]);
                control_reply(c, "using");
        } else if (std::sscanf(line, "name %u", &n) == 1 && n < kSettingCount) {
                control_reply(c, "name %s", kSettings[n].name);
        } else {
                return false;
        }
        return true;
}

} // namespace

int main(int argc, char **argv) {
        if (argc != 7 && argc != 8)
                bench_die("usage: %s SOCKET GATE CONTENDER RANK WORLD STORE [ADDRESS]", argv[0]);
        std::signal(SIGPIPE, SIG_IGN);
        try {
                struct control c;
                int rank = std::stoi(argv[4]), world = std::stoi(argv[5]);
                Peer peer(rank, world, argv[6], argv[2], argc > 7 ? argv[7] : "127.0.0.1");

                control_open(&c, argv[1], argv[3], static_cast<unsigned int>(rank));
                const bench_peer served = { &peer, peer.gate(), static_cast<unsigned int>(world),
                                            step,  release,     obey };
                bench_serve(&served, &c);
        } catch (const std::exception &e) {
                bench_die("gloo: %s", e.what());
        }
        return 0;
}
