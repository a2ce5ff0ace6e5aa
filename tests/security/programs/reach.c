/* Tries everything that a process may do to another: `reach PID`. */
#include "attempt.h"

#include <dirent.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

static pid_t target;

static const char *entry(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "/proc/%d/%s", target, name);
    return path;
}
static long read_entry(const char *name) { return show(open(entry(name), O_RDONLY)); }
static long list_entry(const char *name) {
    DIR *directory = opendir(entry(name));
    if (directory == NULL)
        return -1;
    errno = ENOENT;
    return readdir(directory) ? 0 : -1;
}
static long link_entry(const char *name) {
    char text[PATH_MAX];
    return readlink(entry(name), text, sizeof text);
}

static long environment(void) { return read_entry("environ"); }
static long mappings(void) { return read_entry("maps"); }
static long mappings_in_short(void) { return read_entry("smaps_rollup"); }
static long pages(void) { return read_entry("pagemap"); }
static long stack(void) { return read_entry("stack"); }
static long call(void) { return read_entry("syscall"); }
static long vector(void) { return read_entry("auxv"); }
static long memory(void) { return open(entry("mem"), O_RDONLY); }
static long memory_written(void) { return open(entry("mem"), O_RDWR); }
static long score(void) { return open(entry("oom_score_adj"), O_WRONLY); }
static long name_changed(void) {
    int fd = open(entry("comm"), O_WRONLY);
    return fd < 0 ? -1 : write(fd, "x", 1);
}
static long root(void) { return list_entry("root"); }
static long directory(void) { return list_entry("cwd"); }
static long descriptors(void) { return list_entry("fd"); }
static long program(void) { return link_entry("exe"); }
static long input(void) { return link_entry("fd/0"); }
static long input_opened(void) { return open(entry("fd/0"), O_RDWR | O_NONBLOCK); }
static long namespace(void) { return open(entry("ns/mnt"), O_RDONLY); }
static long attached(void) { return ptrace(PTRACE_ATTACH, target, NULL, NULL); }
static long seized(void) { return ptrace(PTRACE_SEIZE, target, NULL, NULL); }
static long vm_read(void) {
    char bytes[64];
    struct iovec here = {bytes, sizeof bytes}, there = {(void *)0x400000, sizeof bytes};
    return process_vm_readv(target, &here, 1, &there, 1, 0);
}
static int open_process(void) { return (int)syscall(434 /* pidfd_open */, target, 0); }
static long descriptor_taken(void) { return syscall(438 /* pidfd_getfd */, open_process(), 1, 0); }
static long compared(void) { return syscall(SYS_kcmp, getpid(), target, 0, 0, 0); }
static long probed(void) { return kill(target, 0); }
static long terminated(void) { return kill(target, SIGTERM); }
static long killed(void) { return kill(target, SIGKILL); }
static long stopped(void) { return kill(target, SIGSTOP); }
static long group_killed(void) { return target > 1 ? kill(-target, SIGKILL) : kill(1, SIGKILL); }
static long thread_killed(void) { return syscall(SYS_tgkill, target, target, SIGKILL); }
static long queued(void) {
    union sigval value = {0};
    return sigqueue(target, SIGKILL, value);
}
static long killed_by_descriptor(void) {
    return syscall(424 /* pidfd_send_signal */, open_process(), SIGKILL, NULL, 0);
}
static long killed_by_its_input(void) {
    /* A descriptor sends its owner a signal when something can be read. */
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 || fcntl(pair[0], F_SETOWN, target) < 0 ||
        fcntl(pair[0], F_SETSIG, SIGKILL) < 0 || fcntl(pair[0], F_SETFL, O_ASYNC) < 0 ||
        write(pair[1], "x", 1) != 1)
        return -1;
    errno = EPERM; /* only the target shows whether the signal was sent */
    return -1;
}
static long limited(void) {
    struct rlimit limit = {1, 1};
    return prlimit(target, RLIMIT_CPU, &limit, NULL);
}
static long slowed(void) { return setpriority(PRIO_PROCESS, (id_t)target, 19); }
static long pinned(void) {
    unsigned long first = 1;
    return syscall(SYS_sched_setaffinity, target, sizeof first, &first);
}
static long made_idle(void) {
    int none = 0;
    return syscall(SYS_sched_setscheduler, target, 5 /* SCHED_IDLE */, &none);
}
static long parameters_set(void) {
    int none = 0;
    return syscall(SYS_sched_setparam, target, &none);
}
static long attributes_set(void) {
    struct {
        unsigned size, policy;
        unsigned long flags;
        int nice;
        unsigned priority;
        unsigned long rest[4];
    } wanted = {.size = 48, .policy = 5};
    return syscall(SYS_sched_setattr, target, &wanted, 0);
}
static long group_slowed(void) { return setpriority(PRIO_PGRP, (id_t)target, 19); }
static long user_slowed(void) { return setpriority(PRIO_USER, 0, 19); }
static long user_input_slowed(void) { return syscall(SYS_ioprio_set, 3, 0, 3 << 13); }
static long input_slowed(void) { return syscall(SYS_ioprio_set, 1, target, 3 << 13); }
static long pages_moved(void) { return syscall(SYS_migrate_pages, target, 0, NULL, NULL); }
static long advised(void) {
    struct iovec there = {(void *)0x400000, 4096};
    return syscall(440 /* process_madvise */, open_process(), &there, 1, MADV_DONTNEED, 0);
}

#define TRY(name) attempt(#name, name)

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    target = atoi(argv[1]) > 0 ? atoi(argv[1]) : getppid();
    TRY(environment), TRY(mappings), TRY(mappings_in_short), TRY(pages), TRY(stack), TRY(call);
    TRY(vector), TRY(memory), TRY(memory_written), TRY(score), TRY(name_changed), TRY(root);
    TRY(directory), TRY(descriptors), TRY(program), TRY(input), TRY(input_opened), TRY(namespace);
    TRY(attached), TRY(seized), TRY(vm_read), TRY(descriptor_taken), TRY(compared), TRY(advised);
    TRY(pages_moved), TRY(limited), TRY(slowed), TRY(group_slowed), TRY(input_slowed);
    TRY(pinned), TRY(made_idle), TRY(parameters_set), TRY(attributes_set);
    TRY(user_slowed), TRY(user_input_slowed);
    TRY(probed), TRY(terminated), TRY(stopped), TRY(killed), TRY(group_killed);
    TRY(thread_killed), TRY(queued), TRY(killed_by_descriptor), TRY(killed_by_its_input);
    kill(-1, SIGKILL); /* last: if nothing stops it, it kills this process too */
    return 0;
}
