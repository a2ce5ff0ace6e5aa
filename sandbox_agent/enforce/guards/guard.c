/* The guard of commands that need no further step: what guard_process.py does, without Python.
 *
 * A process of the agent executes it before it is confined; it then confines itself and runs one
 * command after the other. It uses vfork, so that nothing is copied: decision 13 says why nothing
 * of a command can run in the memory that both share. No signal has a handler here, and the process
 * makes system calls only. Reads plans that compiled.py writes; guard_messages.py has the messages.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    START, PATHS, DIRECTORY, PROGRAM, /* steps of guard_messages.py */
    FAILED = 70,                      /* the exit status of a guard that can't go on */
    NOT_EXECUTED = 255,
    NOT_FOUND_STATUS = 127 << 8,
    MOST_BYTES = 256,                 /* of a message */
    MOST_PLAN = 16 << 20,
    MOST_WORDS = 1 << 20,
    MOST_PATH = 8192,                 /* with the links on the way */
    MOST_LINKS = 40,
    MOST_DEPTH = 1024,
    PLAN_DESCRIPTORS = 4,             /* three streams and the document */
};

struct setup {
    int agent, starter, preference, ruleset, filter;
    uid_t uid;
    int deny_writable_code;
    uint64_t full_bytes;
    const char *workspace;
    char own_preference[16];
};

/* Three counts, then words: each ends with a NUL. An operand begins with `f` if it follows links. */
struct plan {
    char *workspace, *cwd, *program;
    char **argv, **envp, **inside;
    uint32_t argc, envc, operands;
};

struct order {
    char kind;
    int signal;
    uint64_t number;
};

/* Of the present command. */
static struct {
    uint64_t number, outlived;
    pid_t first;
    int first_ended, left_behind;
    volatile int step, error; /* written by the command's process until it executes its program */
} command;

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "guard failed: %s %d\n", what, errno);
    _exit(FAILED);
}

static int parse_number(const char *text, size_t size, uint64_t most, uint64_t *number)
{
    *number = 0;
    if (size == 0 || size > 18)
        return 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    }
    return *number <= most;
}

/* `t N`, `k N` or `s<signal> N`. */
static int parse_order(const char *text, size_t size, struct order *order)
{
    const char *space = memchr(text, ' ', size);
    if (space == NULL)
        return 0;
    size_t head = (size_t)(space - text);
    uint64_t signal = 0;
    order->kind = text[0];
    if (order->kind == 's' ? head > 4 || !parse_number(text + 1, head - 1, 999, &signal)
                           : head != 1 || (order->kind != 't' && order->kind != 'k'))
        return 0;
    order->signal = (int)signal;
    return parse_number(space + 1, size - head - 1, UINT64_MAX, &order->number);
}

/* Returns an error number, or 0: then the plan's words are in `data`, its vectors in one block. */
static int parse_plan(char *data, size_t size, struct plan *plan)
{
    uint32_t counts[3];
    if (size > MOST_PLAN)
        return E2BIG;
    if (size <= sizeof counts || data[size - 1] != '\0')
        return EINVAL;
    memcpy(counts, data, sizeof counts);
    uint64_t words = (uint64_t)counts[0] + counts[1] + counts[2];
    if (counts[0] == 0 || words + 3 > size - sizeof counts)
        return EINVAL;
    if (words > MOST_WORDS)
        return E2BIG;
    char **next = calloc(words + 3, sizeof *next), *rest = data + sizeof counts, *end = data + size;
    if (next == NULL)
        return ENOMEM;
    plan->argc = counts[0], plan->envc = counts[1], plan->operands = counts[2];
    plan->argv = next, plan->envp = next + counts[0] + 1, plan->inside = plan->envp + counts[1] + 1;
    char *single[3];
    for (uint64_t i = 0; i < words + 3 && rest < end; i++) {
        uint64_t j = i - 3;
        if (i < 3)
            single[i] = rest;
        else if (j < counts[0])
            plan->argv[j] = rest;
        else if (j - counts[0] < counts[1])
            plan->envp[j - counts[0]] = rest;
        else
            plan->inside[j - counts[0] - counts[1]] = rest;
        rest = (char *)memchr(rest, '\0', (size_t)(end - rest)) + 1;
        if (i == words + 2 && rest == end) {
            plan->workspace = single[0], plan->cwd = single[1], plan->program = single[2];
            return 0;
        }
    }
    free(next);
    return EINVAL;
}

/* Opens a path beneath a directory, as beneath.py does: a descriptor, or a negative error. */
static int open_beneath(int top, const char *path, int follow)
{
    char rest[MOST_PATH], longer[MOST_PATH], name[NAME_MAX + 1];
    int entered[MOST_DEPTH], depth = 0, links = 0, error = 0, more = 1;
    size_t size = strlen(path);
    if (size >= sizeof rest)
        return -ELOOP;
    memcpy(rest, path, size + 1);
    char *at = rest;
    if ((entered[depth++] = fcntl(top, F_DUPFD_CLOEXEC, 3)) < 0)
        return -errno;
    while (more && !error) {
        size_t length = strcspn(at, "/");
        more = at[length] == '/';
        if (length > NAME_MAX) {
            error = ENAMETOOLONG;
            break;
        }
        memcpy(name, at, length);
        name[length] = '\0';
        at += length + (size_t)more;
        if (strcmp(name, "..") == 0) {
            if (depth == 1)
                error = EXDEV;
            else
                close(entered[--depth]);
            continue;
        }
        if (length == 0 || strcmp(name, ".") == 0)
            continue;
        struct stat found;
        int fd = depth == MOST_DEPTH
            ? (errno = ELOOP, -1)
            : openat(entered[depth - 1], name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            error = errno;
            break;
        }
        entered[depth++] = fd;
        if (!more && !follow)
            continue;
        if (fstat(fd, &found) < 0) {
            error = errno;
        } else if (S_ISLNK(found.st_mode)) {
            ssize_t target = readlinkat(fd, "", longer, sizeof longer - 1);
            size_t left = strlen(at);
            if (target < 0)
                error = errno;
            else if (target > 0 && longer[0] == '/')
                error = EXDEV;
            else if (++links > MOST_LINKS || (size_t)target + 1 + left >= sizeof longer)
                error = ELOOP;
            else {
                if (more)
                    longer[target++] = '/';
                memcpy(longer + target, at, left + 1);
                memcpy(rest, longer, (size_t)target + left + 1);
                at = rest;
                more = 1;
            }
            close(entered[--depth]);
        }
    }
    int opened = error ? -error : entered[--depth];
    while (depth > 0)
        close(entered[--depth]);
    return opened;
}

/* Whether a link on the way has no target, as command_process.py decides; or a negative error. */
static int dangles(int workspace, const char *path)
{
    struct stat found;
    char part[MOST_PATH];
    memcpy(part, path, strlen(path) + 1); /* open_beneath has refused longer ones */
    while (part[0] != '\0') {
        if (fstatat(workspace, part, &found, AT_SYMLINK_NOFOLLOW) == 0) {
            if (fstatat(workspace, part, &found, 0) == 0)
                return 0;
            return errno == ENOENT ? 1 : -errno;
        }
        if (errno != ENOENT)
            return -errno;
        char *slash = strrchr(part, '/');
        *(slash != NULL ? slash : part) = '\0';
    }
    return 0;
}

/* Whether an operand stays in the workspace, as command_process.py decides; or a negative error. */
static int stays(int workspace, const char *operand)
{
    const char *path = operand + 1;
    if (operand[0] == '\0' || path[0] == '/')
        return 0;
    int fd = open_beneath(workspace, path, operand[0] == 'f');
    if (fd >= 0) {
        close(fd);
        return 1;
    }
    if (fd == -EXDEV || fd == -ELOOP)
        return 0;
    if (fd != -ENOENT)
        return 1;
    int dangling = dangles(workspace, path);
    return dangling < 0 ? dangling : !dangling;
}

/* Takes on a user's effective ids; the real and the saved ones stay root's. */
static void act_as(uid_t uid)
{
    if (uid == 0 && syscall(SYS_setresuid, -1, 0, -1) < 0)
        give_up("setresuid");
    if (syscall(SYS_setresgid, -1, uid, -1) < 0)
        give_up("setresgid");
    if (uid != 0 && syscall(SYS_setresuid, -1, uid, -1) < 0)
        give_up("setresuid");
}

static void send_report(const struct setup *setup, const char *text)
{
    /* Without the agent, nobody needs it. */
    if (send(setup->agent, text, strlen(text), MSG_NOSIGNAL) < 0 && errno != EPIPE
        && errno != ECONNRESET)
        give_up("send");
}

static void report_failure(const struct setup *setup, int step, int error)
{
    char text[MOST_BYTES];
    snprintf(text, sizeof text, "X%d %d", step, error);
    send_report(setup, text);
}

static int is_full(const struct setup *setup, const char *directory)
{
    struct statvfs found;
    if (statvfs(directory, &found) < 0)
        return 0;
    return (uint64_t)found.f_bavail * found.f_frsize < setup->full_bytes
        || (found.f_files > 0 && found.f_favail == 0);
}

static void report_end(const struct setup *setup, int status, const struct rusage *used)
{
    char text[MOST_BYTES];
    uint64_t cpu = (uint64_t)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000
        + (uint64_t)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
    if (command.error)
        report_failure(setup, command.step, command.error);
    int full = status != 0 && (is_full(setup, setup->workspace) || is_full(setup, "/tmp"));
    snprintf(text, sizeof text, "E%d %llu %llu %d %d", status, (unsigned long long)cpu,
             (unsigned long long)used->ru_maxrss * 1024, command.left_behind, full);
    send_report(setup, text);
}

static void report_gone(const struct setup *setup)
{
    char text[MOST_BYTES];
    snprintf(text, sizeof text, "G%llu", (unsigned long long)command.outlived);
    send_report(setup, text);
}

/* Reaps ended processes; returns 0 if no child is left. */
static int reap(const struct setup *setup, int counting)
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
        if (pid == command.first)
            first = 1, status_of_first = status, of_first = used;
        else if (counting)
            command.outlived++;
    }
    if (first) {
        command.first_ended = 1;
        command.left_behind = left || counting;
        report_end(setup, status_of_first, &of_first);
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

static void kill_tree(const struct setup *setup)
{
    siginfo_t ended;
    while (reap(setup, 1)) {
        signal_as_user(setup, -1, SIGKILL);
        waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
    }
}

/* Carries out one order; returns 0 for the last one. */
static int obey(const struct setup *setup, const char *text, size_t size)
{
    struct order order;
    if (!parse_order(text, size, &order) || order.number != command.number)
        return 1; /* not an order, or one for an earlier command */
    if (order.kind == 's') {
        if (!command.first_ended)
            signal_as_user(setup, -command.first, order.signal);
    } else if (order.kind == 't') {
        signal_as_user(setup, -1, SIGTERM);
    } else {
        kill_tree(setup);
        report_gone(setup);
        return 0;
    }
    return 1;
}

/* Waits until nothing of the command is left; returns 0 if the agent is gone. */
static int attend(const struct setup *setup, int ended)
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
            if (!reap(setup, 0)) {
                if (command.left_behind) /* the agent waits for these processes to end */
                    report_gone(setup);
                return 1;
            }
        }
        if (!watched[1].revents)
            continue;
        ssize_t size = recv(setup->agent, text, sizeof text, 0);
        if (size <= 0) {
            kill_tree(setup);
            return 0;
        }
        if (!obey(setup, text, (size_t)size))
            return 1;
    }
}

/* Enters the plan's directory and checks its operands as the session's user. Returns whether the
 * command may start, else reports why not. */
static int enter(const struct setup *setup, const struct plan *plan)
{
    char text[MOST_BYTES];
    int step = START, error = 0, directory = -1;
    uint32_t escaping = plan->operands;
    act_as(setup->uid);
    int workspace = open(plan->workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (workspace < 0) {
        error = errno;
    } else {
        step = DIRECTORY;
        if (plan->cwd[0] == '/')
            error = chdir(plan->cwd) < 0 ? errno : 0;
        else if ((directory = open_beneath(workspace, plan->cwd, 1)) < 0)
            error = -directory;
        else
            error = fchdir(directory) < 0 ? errno : 0;
    }
    for (uint32_t i = 0; i < plan->operands && !error && escaping == plan->operands; i++) {
        int answer = stays(workspace, plan->inside[i]);
        step = PATHS;
        if (answer < 0)
            error = -answer;
        else if (!answer)
            escaping = i;
    }
    act_as(0);
    if (directory >= 0)
        close(directory);
    if (workspace >= 0)
        close(workspace);
    if (error) {
        report_failure(setup, step, error);
    } else if (escaping < plan->operands) {
        snprintf(text, sizeof text, "D%u", escaping);
        send_report(setup, text);
        send_report(setup, "E32512 0 0 0 0");
        return 0;
    }
    if (error)
        send_report(setup, "E0 0 0 0 0");
    return !error;
}

/* Runs in the command's process, which shares this memory until it executes its program. */
static _Noreturn void become(const struct plan *plan, const int *streams, uid_t uid)
{
    sigset_t none;
    command.step = START;
    sigemptyset(&none);
    if (setsid() >= 0 && dup2(streams[0], 0) >= 0 && dup2(streams[1], 1) >= 0
        && dup2(streams[2], 2) >= 0 && syscall(SYS_setresgid, uid, uid, uid) == 0
        && syscall(SYS_setresuid, uid, uid, uid) == 0
        && sigprocmask(SIG_SETMASK, &none, NULL) == 0) {
        command.step = PROGRAM;
        execve(plan->program, plan->argv, plan->envp); /* reported, and waits until it may run */
    }
    command.error = errno;
    _exit(NOT_EXECUTED);
}

/* The number of the command's process, which executes its program or has failed; or a negative one.
 * This process stands still until then. */
static pid_t __attribute__((noinline))
spawn(const struct setup *setup, const struct plan *plan, const int *streams)
{
    command.error = 0;
    /* It inherits the preference, which it can't set. */
    if (pwrite(setup->preference, "1000", 4, 0) < 0)
        give_up("oom_score_adj");
    pid_t pid = vfork();
    if (pid == 0)
        become(plan, streams, setup->uid);
    if (pid < 0)
        command.error = errno;
    if (pwrite(setup->preference, setup->own_preference, strlen(setup->own_preference), 0) < 0)
        give_up("oom_score_adj");
    return pid;
}

/* Starts the command's process; returns whether there is one to attend to, else reports. */
static int start(const struct setup *setup, char *data, size_t size, const int *streams)
{
    struct plan plan;
    int error = parse_plan(data, size, &plan);
    if (error) {
        report_failure(setup, START, error);
        send_report(setup, "E0 0 0 0 0");
        return 0;
    }
    int started = enter(setup, &plan);
    if (started) {
        pid_t pid = command.first = spawn(setup, &plan, streams);
        error = command.error;
        if (pid < 0) {
            report_failure(setup, START, error);
            send_report(setup, "E0 0 0 0 0");
            started = 0;
        }
    }
    if (chdir("/") < 0)
        give_up("chdir");
    free(plan.argv);
    return started;
}

/* Receives the next command and runs it to its end; returns 0 when the guard is not needed. */
static int serve(const struct setup *setup, int ended)
{
    char text[MOST_BYTES], wanted[MOST_BYTES];
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int) * (PLAN_DESCRIPTORS + 1))];
    } control;
    int given[PLAN_DESCRIPTORS + 1];
    command.number++;
    command.outlived = 0;
    command.first_ended = command.left_behind = 0;
    int length = snprintf(wanted, sizeof wanted, "p%llu", (unsigned long long)command.number);
    for (;;) {
        struct iovec part = {text, sizeof text};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                                 .msg_controllen = sizeof control};
        ssize_t size = recvmsg(setup->starter, &message, MSG_CMSG_CLOEXEC);
        if (size <= 0)
            return 0;
        size_t count = 0;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
            count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(given, CMSG_DATA(header), count * sizeof(int));
        }
        int mine = size == length && memcmp(text, wanted, (size_t)length) == 0;
        int running = 0;
        if (mine) {
            struct stat document;
            char *data = MAP_FAILED;
            size_t bytes = 0;
            if (count == PLAN_DESCRIPTORS && fstat(given[3], &document) == 0
                && document.st_size > 0) {
                bytes = (size_t)document.st_size;
                data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, given[3], 0);
            }
            running = start(setup, data == MAP_FAILED ? NULL : data,
                            data == MAP_FAILED ? 0 : bytes, given);
            if (data != MAP_FAILED)
                munmap(data, bytes);
        }
        for (size_t i = 0; i < count; i++)
            close(given[i]);
        if (mine)
            return running ? attend(setup, ended) : 1;
    }
}

/* Enters the confinement of its commands, as guard_process.py does. */
static void confine(struct setup *setup)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        give_up("no_new_privs");
    if (syscall(SYS_landlock_restrict_self, setup->ruleset, 0) < 0)
        give_up("landlock");
    close(setup->ruleset);
    struct stat file;
    if (fstat(setup->filter, &file) < 0)
        give_up("filter");
    size_t bytes = (size_t)file.st_size;
    struct sock_filter *code = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, setup->filter, 0);
    if (code == MAP_FAILED || bytes % sizeof *code != 0 || bytes / sizeof *code > UINT16_MAX)
        give_up("filter");
    struct sock_fprog program = {(unsigned short)(bytes / sizeof *code), code};
    if (setup->deny_writable_code && prctl(65 /* PR_SET_MDWE */, 1, 0, 0, 0) < 0)
        give_up("mdwe");
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0)
        give_up("seccomp");
    munmap(code, bytes);
    close(setup->filter);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &listener, sizeof listener);
    struct iovec part = {(char[]){'L'}, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (sendmsg(setup->agent, &message, MSG_NOSIGNAL) < 0)
        give_up("listener");
    close(listener);
}

int main(int argc, char **argv)
{
    uint64_t numbers[8];
    if (argc != 10)
        give_up("arguments");
    for (int i = 0; i < 8; i++)
        if (!parse_number(argv[i + 1], strlen(argv[i + 1]), i < 7 ? UINT32_MAX : UINT64_MAX,
                          &numbers[i]))
            give_up("arguments");
    struct setup setup = {
        .agent = (int)numbers[0], .starter = (int)numbers[1], .preference = (int)numbers[2],
        .ruleset = (int)numbers[3], .filter = (int)numbers[4], .uid = (uid_t)numbers[5],
        .deny_writable_code = numbers[6] != 0, .full_bytes = numbers[7], .workspace = argv[9],
    };
    if (setup.uid == 0)
        give_up("uid");
    for (int i = 0; i < 5; i++)
        if (fcntl((int)numbers[i], F_SETFD, FD_CLOEXEC) < 0)
            give_up("descriptors");
    ssize_t size = pread(setup.preference, setup.own_preference, sizeof setup.own_preference - 1, 0);
    if (size <= 0)
        give_up("oom_score_adj");
    setup.own_preference[size] = '\0';
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &children, NULL) < 0)
        give_up("sigprocmask");
    int ended = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ended < 0)
        give_up("signalfd");
    confine(&setup);
    while (serve(&setup, ended))
        continue;
    return 0;
}
