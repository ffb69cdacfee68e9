/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of digits and digits_cuda. The defaults are what the quickstart runs. */
#include "options.h"

#include "dataset.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
        "Usage: digits [OPTION]…\n"
        "Train a perceptron to read handwritten digits, together with the other members of a gradsync job.\n"
        "\n"
        "  --epochs N        passes over the training rows (30)\n"
        "  --batch N         rows of one step, all members together; a multiple of their number (48)\n"
        "  --lr X            learning rate (0.05)\n"
        "  --momentum X      0 to below 1 (0.9)\n"
        "  --seed N          for the initial parameters and the order of the rows (1)\n"
        "  --data FILE       the digits as CSV, gzipped or not (what came with this program)\n"
        "  --device N        the GPU to compute on (0), for digits_cuda\n"
        "  --exec COMMAND    rank 0 runs this in a shell while it trains, and waits for it before it leaves\n"
        "  --exec-epoch N    start the command after this epoch (1)\n"
        "  --json            every member prints one JSON object a line instead of text\n"
        "  --no-sync         do not average the gradients, to see the comparison of the parameters fail\n"
        "  --help            this text\n"
        "\n"
        "Alone it trains by itself; `gradsyncctl run -n 4 -- digits` trains the same model, shared by "
        "four.\n";

static void complain(const char *option, const char *value) {
        fprintf(stderr, "digits: --%s: '%s' makes no sense; see --help\n", option, value);
        exit(2);
}

static uint64_t parse_number(const char *option, const char *value, uint64_t least, uint64_t most) {
        char *end;
        errno = 0;
        uint64_t number = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || errno || number < least || number > most)
                complain(option, value);
        return number;
}

static float parse_real(const char *option, const char *value, float below) {
        char *end;
        float number = strtof(value, &end);
        if (end == value || *end || !isfinite(number) || number < 0.f || number >= below)
                complain(option, value);
        return number;
}

enum { EPOCHS = 1, BATCH, RATE, MOMENTUM, SEED, DATA, DEVICE, EXEC, EXEC_EPOCH, JSON, NO_SYNC, HELP };

static const struct option known[] = {
        { "epochs", required_argument, NULL, EPOCHS },
        { "batch", required_argument, NULL, BATCH },
        { "lr", required_argument, NULL, RATE },
        { "momentum", required_argument, NULL, MOMENTUM },
        { "seed", required_argument, NULL, SEED },
        { "data", required_argument, NULL, DATA },
        { "device", required_argument, NULL, DEVICE },
        { "exec", required_argument, NULL, EXEC },
        { "exec-epoch", required_argument, NULL, EXEC_EPOCH },
        { "json", no_argument, NULL, JSON },
        { "no-sync", no_argument, NULL, NO_SYNC },
        { "help", no_argument, NULL, HELP },
        { NULL, 0, NULL, 0 },
};

static void take(struct options *options, int option, const char *name) {
        switch (option) {
        case EPOCHS: options->epochs = parse_number(name, optarg, 1, 1000000); break;
        case BATCH: options->batch = parse_number(name, optarg, 1, 1024); break;
        case RATE: options->rate = parse_real(name, optarg, 1e6f); break;
        case MOMENTUM: options->momentum = parse_real(name, optarg, 1.f); break;
        case SEED: options->seed = parse_number(name, optarg, 0, UINT64_MAX); break;
        case DATA: options->data = optarg; break;
        case DEVICE: options->device = (int)parse_number(name, optarg, 0, INT_MAX); break;
        case EXEC: options->exec = optarg; break;
        case EXEC_EPOCH: options->exec_epoch = parse_number(name, optarg, 1, 1000000); break;
        case JSON: options->json = true; break;
        case NO_SYNC: options->no_sync = true; break;
        case HELP: fputs(help, stdout); exit(0);
        default: exit(2); /* getopt has said why */
        }
}

void options_parse(struct options *options, int argc, char **argv) {
        *options = (struct options){
                .epochs = 30,
                .batch = 48,
                .rate = 0.05f,
                .momentum = 0.9f,
                .seed = 1,
                .device = -1,
                .data = dataset_file(),
                .exec_epoch = 1,
        };
        int option, index = 0;
        while ((option = getopt_long(argc, argv, "", known, &index)) != -1)
                take(options, option, known[index].name);
        if (optind < argc) {
                fprintf(stderr, "digits: '%s' is no option; see --help\n", argv[optind]);
                exit(2);
        }
        if (options->exec && options->exec_epoch > options->epochs)
                complain("exec-epoch", "a later epoch than the last");
}
