/* What every attack program shares: attempts run in children of their own, so that one that is
 * killed, hangs or changes itself leaves the others alone. A line `+name` says that an attempt
 * had its effect, `-name reason` that it had not. */
#ifndef ATTEMPT_H
#define ATTEMPT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANARY "/usr/share/canary"
/* The payloads make this file in their working directory, which is the workspace. */
#define MARKER "marker"
/* Longer than anything here takes; a hang is no success. */
#define PATIENCE_SECONDS 20

static void report(const char *name, int worked, const char *reason) {
    if (worked)
        printf("+%s\n", name);
    else
        printf("-%s\t%s\n", name, reason);
    fflush(stdout);
}

/* `work` returns less than 0, with errno, when it was refused. What is printed by it stays. */
static void attempt(const char *name, long (*work)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        report(name, 0, "no process");
        exit(3); /* then nothing was attempted */
    }
    if (child == 0) {
        alarm(PATIENCE_SECONDS);
        errno = 0;
        long result = work();
        int reason = errno ? errno : 1;
        fflush(stdout);
        _exit(result >= 0 ? 0 : reason);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        report(name, 0, strsignal(WTERMSIG(status)));
    else
        report(name, WEXITSTATUS(status) == 0, strerror(WEXITSTATUS(status)));
}

/* An attempt to execute: it worked when the payload has made its marker. */
static void attempt_exec(const char *name, long (*work)(void)) {
    unlink(MARKER);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        exit(3);
    int reason = 0;
    if (child == 0) {
        alarm(PATIENCE_SECONDS);
        errno = 0;
        work();
        _exit(errno ? errno : 1);
    }
    while (waitpid(child, &reason, 0) < 0 && errno == EINTR)
        ;
    int worked = access(MARKER, F_OK) == 0;
    report(name, worked,
           WIFSIGNALED(reason) ? strsignal(WTERMSIG(reason)) : strerror(WEXITSTATUS(reason)));
    unlink(MARKER);
}

/* Shows what an open file holds: the tests look for canaries in everything that is printed. */
static long show(int fd) {
    char buffer[4096];
    if (fd < 0)
        return -1;
    ssize_t count = read(fd, buffer, sizeof buffer);
    if (count <= 0)
        return -1;
    fwrite(buffer, 1, (size_t)count, stdout);
    fputc('\n', stdout);
    return 0;
}

static long copy(const char *source, const char *target, int flags) {
    char buffer[65536];
    ssize_t count;
    int from = open(source, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return -1;
    int to = open(target, O_RDWR | flags, 0755);
    if (to < 0)
        return -1;
    while ((count = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)count) != count)
            return -1;
    close(from);
    return to;
}

#endif
