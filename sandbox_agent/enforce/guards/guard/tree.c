/* The processes of one command: signalled, reaped and ended, until nothing of them is left. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

/* Reaps ended processes; returns 0 if no child is left. */
static int reap(const struct setup *setup, struct command *command, int counting)
{
    struct rusage used, of_first;
    int status, status_of_first = 0, first = 0, left = 1;
    for (;;) {
        pid_t pid = wait4(-1, &status, WNOHANG, &used);
        if (pid == 0)
            break;
        if (pid < 0) {
            left = 0;
            break;
        }
        if (pid == command->first)
            first = 1, status_of_first = status, of_first = used;
        else if (counting)
            command->outlived++;
    }
    if (first) {
        command->first_ended = 1;
        command->left_behind = left || counting;
        report_end(setup, command, status_of_first, &of_first);
    }
    return left;
}

/* Its Landlock domain limits the reach of -1 to its own tree. */
static void signal_as_user(const struct setup *setup, pid_t pid, int number)
{
    act_as(setup->uid);
    kill(pid, number);
    act_as(0);
}

static void kill_tree(const struct setup *setup, struct command *command)
{
    siginfo_t ended;
    while (reap(setup, command, 1)) {
        signal_as_user(setup, -1, SIGKILL);
        waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
    }
}

/* Carries out one order; returns 0 for the last one. */
static int obey(const struct setup *setup, struct command *command, const char *text, size_t size)
{
    struct order order;
    if (!parse_order(text, size, &order) || order.number != command->number)
        return 1; /* not an order, or one for an earlier command */
    if (order.kind == 's') {
        if (!command->first_ended)
            signal_as_user(setup, -command->first, order.signal);
    } else if (order.kind == 't') {
        signal_as_user(setup, -1, SIGTERM);
    } else {
        kill_tree(setup, command);
        report_gone(setup, command);
        return 0;
    }
    return 1;
}

int attend(const struct setup *setup, struct command *command, int ended)
{
    struct pollfd watched[] = {{.fd = ended, .events = POLLIN},
                               {.fd = setup->agent, .events = POLLIN}};
    struct signalfd_siginfo ignored;
    char text[MOST_BYTES];
    for (;;) {
        if (poll(watched, 2, -1) < 0)
            give_up("poll");
        if (watched[0].revents) {
            if (read(ended, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
                give_up("signalfd");
            if (!reap(setup, command, 0)) {
                if (command->left_behind) /* the agent waits for these processes to end */
                    report_gone(setup, command);
                return 1;
            }
        }
        if (!watched[1].revents)
            continue;
        ssize_t size = recv(setup->agent, text, sizeof text, 0);
        if (size <= 0) {
            kill_tree(setup, command);
            return 0;
        }
        if (!obey(setup, command, text, (size_t)size))
            return 1;
    }
}
