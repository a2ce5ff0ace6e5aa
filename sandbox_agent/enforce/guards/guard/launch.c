/* Starts the process of one command, which shares the guard's memory until it executes. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard.h"

enum {
    NOT_EXECUTED = 255,
    CONTROL = 200, /* CONTROL_FD of command_process.py */
};

/* Enters the plan's directory; returns an error number, or 0. */
static int enter_directory(int workspace, const char *path)
{
    if (path[0] == '/')
        return chdir(path) < 0 ? errno : 0;
    int directory = open_beneath(workspace, path, 1);
    if (directory < 0)
        return -directory;
    int error = fchdir(directory) < 0 ? errno : 0;
    close(directory);
    return error;
}

/* Enters the plan's directory and checks its operands as the session's user. Returns whether the
 * command may start, else reports why not. */
static int enter(const struct setup *setup, const struct plan *plan)
{
    int step = START, error = 0;
    uint32_t passed = 0;
    act_as(setup->uid);
    int workspace = open(plan->workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (workspace < 0) {
        error = errno;
    } else {
        step = DIRECTORY;
        error = enter_directory(workspace, plan->cwd);
    }
    while (!error && passed < plan->operands) {
        int answer = stays(workspace, plan->inside[passed]);
        step = PATHS;
        if (answer < 0)
            error = -answer;
        else if (!answer)
            break;
        else
            passed++;
    }
    act_as(0);
    if (workspace >= 0)
        close(workspace);
    if (error)
        report_unstarted(setup, step, error);
    else if (passed < plan->operands)
        report_denied(setup, passed);
    return !error && passed == plan->operands;
}

/* Runs in the command's process, which shares this memory until it executes its program. */
static _Noreturn void become(const struct plan *plan, struct command *command, const int *streams,
                             size_t count, uid_t uid)
{
    static const int targets[MOST_STREAMS] = {0, 1, 2, CONTROL};
    sigset_t none;
    command->step = START;
    sigemptyset(&none);
    int ready = setsid() >= 0;
    for (size_t i = 0; ready && i < count; i++)
        ready = dup2(streams[i], targets[i]) >= 0;
    /* The input may be another one than the terminal. */
    if (ready && (!plan->terminal || ioctl(1, TIOCSCTTY, 0) == 0)
        && syscall(SYS_setresgid, uid, uid, uid) == 0 && syscall(SYS_setresuid, uid, uid, uid) == 0
        && sigprocmask(SIG_SETMASK, &none, NULL) == 0) {
        command->step = PROGRAM;
        execve(plan->program, plan->argv, plan->envp); /* reported, and waits until it may run */
    }
    command->error = errno;
    _exit(NOT_EXECUTED);
}

/* The command's process executes its program or has failed; or there is none, and this number is
 * negative. The guard stands still until then. */
static pid_t __attribute__((noinline))
spawn(const struct setup *setup, const struct plan *plan, struct command *command,
      const int *streams, size_t count)
{
    command->error = 0;
    /* It inherits the preference, which it can't set. */
    if (pwrite(setup->preference, "1000", 4, 0) < 0)
        give_up("oom_score_adj");
    pid_t pid = vfork();
    if (pid == 0)
        become(plan, command, streams, count, setup->uid);
    if (pid < 0)
        command->error = errno;
    if (pwrite(setup->preference, setup->own_preference, strlen(setup->own_preference), 0) < 0)
        give_up("oom_score_adj");
    return pid;
}

int start(const struct setup *setup, struct command *command, int document, const int *streams,
          size_t count)
{
    char *data;
    size_t size;
    struct plan plan;
    int error = map_plan(document, &data, &size);
    if (error) {
        report_unstarted(setup, START, error);
        return 0;
    }
    error = parse_plan(data, size, &plan);
    int started = 0;
    if (error) {
        report_unstarted(setup, START, error);
    } else {
        if (enter(setup, &plan)) {
            command->first = spawn(setup, &plan, command, streams, count);
            started = command->first > 0;
            if (!started)
                report_unstarted(setup, START, command->error);
        }
        if (chdir("/") < 0)
            give_up("chdir");
        free(plan.argv);
    }
    munmap(data, size);
    return started;
}
