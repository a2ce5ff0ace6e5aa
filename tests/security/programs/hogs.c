/* Uses as much of a resource as it can get: `hogs KIND`. */
#include "attempt.h"

#include <sys/prctl.h>
#include <sys/socket.h>

/* Processes that leave their parent, session and group, and ignore signals. */
static int daemons(void) {
    for (int number = 0; number < 5; number++)
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                setpgid(0, 0);
                for (int number_of_signal = 1; number_of_signal < 65; number_of_signal++)
                    signal(number_of_signal, SIG_IGN);
                prctl(PR_SET_NAME, "daemon");
                if (number % 2)
                    for (int fd = 0; fd < 3; fd++)
                        close(fd); /* the others keep the output open */
                for (;;)
                    pause();
            }
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    puts("left");
    return 0;
}

static void forks(void) {
    puts("bombing");
    fflush(stdout);
    for (;;)
        fork();
}

/* Hands over to a child, always, and ends: whoever looks finds a process that is gone. */
static void hand_over(void) {
    for (unsigned long number = 0;; number++) {
        pid_t child = fork();
        if (child > 0)
            _exit(0);
        if (child == 0 && number % 2)
            setsid();
    }
}

static int relays(const char *count) {
    puts("running");
    fflush(stdout);
    for (int number = 0; number < atoi(count); number++)
        if (fork() == 0)
            hand_over();
    return 0;
}

static void woken(int number) {
    (void)number;
    if (fork() == 0)
        hand_over();
}

/* The kernel continues stopped processes whose group loses its last parent. */
static int cradles(const char *count) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGCONT, woken);
    for (int number = 0; number < atoi(count); number++)
        if (fork() == 0) {
            setpgid(0, 0);
            for (int below = 0; below < 4; below++)
                if (fork() == 0) {
                    setpgid(0, 0);
                    break;
                }
            for (;;)
                pause();
        }
    return relays("1");
}

static int memory(void) {
    puts("start");
    fflush(stdout);
    for (;;) {
        char *taken = malloc(1 << 20);
        if (taken == NULL)
            return 1;
        memset(taken, 1, 1 << 20);
    }
}

static int descriptors(void) {
    int count = 0;
    while (open("/dev/null", O_RDONLY) >= 0)
        count++;
    /* A socket can hold more descriptors, which count for no process. */
    int pair[2], sent = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0)
        sent++;
    printf("%d\n", count + sent);
    return 0;
}

static int fill(const char *path) {
    static char block[1 << 16];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return 1;
    memset(block, 1, sizeof block);
    while (write(fd, block, sizeof block) > 0)
        ;
    printf("%lld %d\n", (long long)lseek(fd, 0, SEEK_CUR), errno);
    unlink(path);
    return 0;
}

static int flood(void) {
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    while (write(1, block, sizeof block) > 0)
        if (write(2, block, sizeof block) < 0)
            break;
    return 0;
}

static int deep(void) {
    int depth = 0;
    while (depth < 3000 && mkdir("d", 0755) == 0 && chdir("d") == 0)
        depth++;
    printf("%d\n", depth);
    return 0;
}

static int execs(const char *count) {
    int ran = 0;
    for (int number = 0; number < atoi(count); number++) {
        pid_t child = fork();
        if (child == 0) {
            char *words[] = {"pwd", NULL}, *none[] = {NULL};
            int quiet = open("/dev/null", O_WRONLY);
            dup2(quiet, 1);
            execve("/bin/pwd", words, none);
            _exit(1);
        }
        int status = 1;
        waitpid(child, &status, 0);
        ran += status == 0;
    }
    printf("%d\n", ran);
    return 0;
}

/* Executes a program when a file `go` appears. */
static int waiting(void) {
    char *words[] = {"touch", MARKER, NULL}, *none[] = {NULL};
    puts("waiting");
    fflush(stdout);
    while (access("go", F_OK) < 0)
        usleep(1000);
    return execve("/usr/bin/touch", words, none);
}

/* Executes programs in ways that hide its memory or the path from an observer. */
static int hidden(void) {
    char *words[] = {"touch", MARKER, NULL}, *none[] = {NULL};
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        execve("/usr/bin/touch", words, none);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    unlink("hidden");
    int fd = open("/usr/bin/touch", O_PATH);
    if (symlink("/proc/self/fd/200", "hidden") < 0 || dup2(fd, 200) < 0)
        return 4;
    child = fork();
    if (child == 0) {
        execve("./hidden", words, none);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    if (!strcmp(kind, "daemons"))
        return daemons();
    if (!strcmp(kind, "forks"))
        forks();
    if (!strcmp(kind, "relays") && argc > 2)
        return relays(argv[2]);
    if (!strcmp(kind, "cradles") && argc > 2)
        return cradles(argv[2]);
    if (!strcmp(kind, "memory"))
        return memory();
    if (!strcmp(kind, "descriptors"))
        return descriptors();
    if (!strcmp(kind, "fill") && argc == 3)
        return fill(argv[2]);
    if (!strcmp(kind, "flood"))
        return flood();
    if (!strcmp(kind, "deep"))
        return deep();
    if (!strcmp(kind, "hidden"))
        return hidden();
    if (!strcmp(kind, "waiting"))
        return waiting();
    if (!strcmp(kind, "execs") && argc == 3)
        return execs(argv[2]);
    return 2;
}
