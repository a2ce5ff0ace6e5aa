/* What the agent is told: the messages of guard_messages.py. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "guard.h"

_Noreturn void give_up(const char *what)
{
    fprintf(stderr, "guard failed: %s %d\n", what, errno);
    _exit(FAILED);
}

static void send_report(const struct setup *setup, const char *text)
{
    /* Without the agent, nobody needs it. */
    if (send(setup->agent, text, strlen(text), MSG_NOSIGNAL) < 0 && errno != EPIPE
        && errno != ECONNRESET)
        give_up("send");
}

void report_failure(const struct setup *setup, int step, int error)
{
    char text[MOST_BYTES];
    snprintf(text, sizeof text, "X%d %d", step, error);
    send_report(setup, text);
}

void report_unstarted(const struct setup *setup, int step, int error)
{
    report_failure(setup, step, error);
    send_report(setup, "E0 0 0 0 0");
}

void report_denied(const struct setup *setup, uint32_t operand)
{
    char text[MOST_BYTES];
    snprintf(text, sizeof text, "D%u", operand);
    send_report(setup, text);
    send_report(setup, "E32512 0 0 0 0"); /* the status of a command that was not found */
}

static int is_full(const struct setup *setup, const char *directory)
{
    struct statvfs found;
    if (statvfs(directory, &found) < 0)
        return 0;
    return (uint64_t)found.f_bavail * found.f_frsize < setup->full_bytes
        || (found.f_files > 0 && found.f_favail == 0);
}

void report_end(const struct setup *setup, const struct command *command, int status,
                const struct rusage *used)
{
    char text[MOST_BYTES];
    uint64_t cpu = (uint64_t)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000
        + (uint64_t)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
    if (command->error)
        report_failure(setup, command->step, command->error);
    int full = status != 0 && (is_full(setup, setup->workspace) || is_full(setup, "/tmp"));
    snprintf(text, sizeof text, "E%d %llu %llu %d %d", status, (unsigned long long)cpu,
             (unsigned long long)used->ru_maxrss * 1024, command->left_behind, full);
    send_report(setup, text);
}

void report_gone(const struct setup *setup, const struct command *command)
{
    char text[MOST_BYTES];
    snprintf(text, sizeof text, "G%llu", (unsigned long long)command->outlived);
    send_report(setup, text);
}
