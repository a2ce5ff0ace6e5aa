/* The guard of commands that need no further step: what guard_process.py does, without Python.
 *
 * A process of the agent executes it before it is confined; it then confines itself and runs one
 * command after the other. It uses vfork, so that nothing is copied: decision 13 says why nothing
 * of a command can run in the memory that both share. No signal has a handler here, and the process
 * makes system calls only. Reads plans that compiled.py writes; guard_messages.py has the messages.
 *
 * main.c receives commands, plan.c reads what they are, beneath.c finds their paths, launch.c starts
 * their processes, tree.c attends to these until nothing is left, report.c tells the agent, and
 * confine.c has the guard's own confinement and users.
 */

#ifndef GUARD_H
#define GUARD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    START, PATHS, DIRECTORY, PROGRAM, /* steps of guard_messages.py */
    FAILED = 70,                      /* the exit status of a guard that can't go on */
    MOST_BYTES = 256,                 /* of a message */
    MOST_PATH = 8192,                 /* with the links on the way */
    MOST_STREAMS = 4,                 /* the standard ones, and a socket to the agent */
};

/* The same for every command. The first five are descriptors. */
struct setup {
    int agent, starter, preference, ruleset, filter;
    uid_t uid;
    int deny_writable_code;
    uint64_t full_bytes;
    const char *workspace;
    char own_preference[16];
};

/* Counts and a flag, then words: each ends with a NUL. An operand begins with `f` if it follows
 * links. */
struct plan {
    char *workspace, *cwd, *program;
    char **argv, **envp, **inside;
    uint32_t argc, envc, operands;
    int terminal; /* the streams are a terminal, which becomes the controlling one */
};

struct order {
    char kind;
    int signal;
    uint64_t number;
};

/* The present command. */
struct command {
    uint64_t number, outlived;
    pid_t first;
    int first_ended, left_behind;
    volatile int step, error; /* written by the command's process until it executes its program */
};

/* plan.c. The first two return whether the text is one. The others return an error number, or 0. */
int parse_number(const char *text, size_t size, uint64_t most, uint64_t *number);
int parse_order(const char *text, size_t size, struct order *order);
/* The plan's words are in `data` then, its vectors in one block at `argv`. */
int parse_plan(char *data, size_t size, struct plan *plan);
/* The document's bytes, to be read only and to be unmapped. */
int map_plan(int document, char **data, size_t *size);

/* beneath.c: a descriptor, or a negative error. */
int open_beneath(int top, const char *path, int follow);
/* Whether an operand stays in the workspace, as command_process.py decides; or a negative error. */
int stays(int workspace, const char *operand);

/* launch.c: starts the command of a plan; returns whether there is a process to attend to, else
 * reports. */
int start(const struct setup *setup, struct command *command, int document, const int *streams,
          size_t count);

/* tree.c: waits until nothing of the command is left; returns 0 if the agent is gone. */
int attend(const struct setup *setup, struct command *command, int ended);

/* report.c */
_Noreturn void give_up(const char *what);
void report_failure(const struct setup *setup, int step, int error);
void report_unstarted(const struct setup *setup, int step, int error);
void report_denied(const struct setup *setup, uint32_t operand);
void report_end(const struct setup *setup, const struct command *command, int status,
                const struct rusage *used);
void report_gone(const struct setup *setup, const struct command *command);

/* confine.c: enters the confinement of the commands, as guard_process.py does. */
void confine(struct setup *setup);
/* Takes on a user's effective ids; the real and the saved ones stay root's. */
void act_as(uid_t uid);

#endif
