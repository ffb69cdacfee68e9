/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradsyncctl __complete WORD...: what may stand at the cursor of a line that is being typed. The completions
 * of the shells call it and show what it writes. WORD... are the words of the line after the name of the
 * program, without the quotes of the shell; the last one is that at the cursor, and may be empty.
 *
 *      VALUE <tab> DESCRIPTION      a line for each word that may stand there, whatever it begins with
 *      :files, :directories         the word, or the value in "--option=value", is a path
 *      :command N                   word N of the line (0: the name of the program) is the name of another
 *                                   program, and what follows it belongs to that one
 *
 * Only lines with a VALUE have a tab. It writes nothing to stderr, and ends within a few seconds.
 */
#pragma once

/* `argv`: the words; a "--" in front of them is not one of them. Returns an exit code. */
int complete_line(int argc, char **argv);
