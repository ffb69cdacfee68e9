/* SPDX-License-Identifier: Apache-2.0 */
/* The program of one script. */
#include "script.h"

int main(int argc, char **argv) {
        return script_main(SCRIPT, argc, argv);
}
