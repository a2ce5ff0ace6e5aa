/* Races against checks of a path that are made before the path is used.
 *
  * `races flip directory|link|rename|memory ROUNDS` reads through a path that changes continuously,
  * and prints how often it read a file, and how often one that it may not read.
  * `races exec PATH ROUNDS` executes a path that changes in memory, to PATH and back.
  * `races move ROUNDS` reads relative to a directory that is moved away.
  * `races hold KIND` only changes the path, until a file `stop` appears. */
#include "attempt.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define EXCHANGE 2

static atomic_int over;
static char path[64];

static void exchange(const char *one, const char *other) {
    syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, EXCHANGE);
}

static void *flip_names(void *unused) {
    (void)unused;
    while (!atomic_load(&over))
        exchange("race/name", "race/other");
    return NULL;
}

static void *flip_memory(void *others) {
    const char *const *choices = others;
    for (unsigned turn = 0; !atomic_load(&over); turn++)
        memcpy(path, choices[turn % 2], strlen(choices[turn % 2]) + 1);
    return NULL;
}

static void *flip_directory(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        rename("race/deep/er", "er");
        rename("er", "race/deep/er");
    }
    return NULL;
}

static void inside(const char *name) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "inside", 6) != 6)
        exit(4);
    close(fd);
}

/* Makes `race/name` and `race/other`, one of which leads out. */
static const char *prepare(const char *kind) {
    mkdir("race", 0755);
    mkdir("race/directory", 0755);
    inside("race/directory/canary");
    inside("race/file");
    unlink("race/name");
    unlink("race/other");
    if (!strcmp(kind, "directory")) {
        if (symlink("directory", "race/name") < 0 || symlink("/usr/share", "race/other") < 0)
            exit(4);
        return "race/name/canary";
    }
    if (!strcmp(kind, "rename")) {
        inside("race/name");
        if (symlink(CANARY, "race/other") < 0)
            exit(4);
        return "race/name";
    }
    if (symlink("file", "race/name") < 0 || symlink(CANARY, "race/other") < 0)
        exit(4);
    return "race/name";
}

static void count(int rounds) {
    int read_inside = 0, leaked = 0, refused = 0, turn = 0;
    /* On a busy machine, it takes longer until both results have occurred. */
    for (; turn < rounds || ((!read_inside || !refused) && turn < 1000 * rounds); turn++) {
        if (turn % 16 == 0)
            sched_yield();
        char buffer[64] = {0};
        char chosen[sizeof path];
        const char *use = path;
        if (turn % 2) { /* every second round uses a copy of the path, which does not change */
            memcpy(chosen, path, sizeof chosen);
            use = chosen;
        }
        int fd = open(use, O_RDONLY);
        ssize_t length = fd < 0 ? -1 : read(fd, buffer, sizeof buffer - 1);
        if (fd >= 0)
            close(fd);
        if (length <= 0)
            refused++;
        else if (!strncmp(buffer, "inside", 6))
            read_inside++;
        else
            leaked++, puts(buffer);
    }
    printf("rounds %d inside %d refused %d leaked %d\n", turn, read_inside, refused, leaked);
}

static void flip(const char *kind, int rounds) {
    static const char *choices[] = {"race/file", CANARY};
    pthread_t flipper;
    strcpy(path, prepare(kind));
    int failed = strcmp(kind, "memory") ? pthread_create(&flipper, NULL, flip_names, NULL)
                                        : pthread_create(&flipper, NULL, flip_memory, choices);
    if (failed)
        exit(3);
    count(rounds);
    atomic_store(&over, 1);
    pthread_join(flipper, NULL);
}

/* `../..` is the workspace's `race`, or the root once the directory has been moved. */
static void move(int rounds) {
    mkdir("race", 0755);
    mkdir("race/deep", 0755);
    mkdir("race/deep/er", 0755);
    mkdir("race/usr", 0755);
    mkdir("race/usr/share", 0755);
    inside("race/usr/share/canary");
    if (chdir("race/deep/er") < 0)
        exit(4);
    strcpy(path, "../../usr/share/canary");
    int top = open("/workspace", O_PATH | O_DIRECTORY);
    pid_t mover = fork(); /* its own working directory is not moved */
    if (mover == 0) {
        if (fchdir(top) < 0)
            _exit(1);
        alarm(PATIENCE_SECONDS);
        flip_directory(NULL);
    }
    count(rounds);
    kill(mover, SIGKILL);
}

static void execute(const char *other, int rounds) {
    const char *choices[] = {"/usr/bin/wc", other};
    char *words[] = {"wc", "--version", NULL}, *none[] = {NULL};
    int ran = 0, refused = 0, quiet = open("/dev/null", O_WRONLY);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (quiet < 0 || shared == MAP_FAILED)
        exit(4);
    strcpy(shared, choices[0]);
    /* A check that reads the path while the call waits may see a different path than the kernel. */
    pid_t flipper = fork();
    if (flipper == 0)
        for (unsigned turn = 0;; turn++, usleep(10))
            memcpy(shared, choices[turn % 2], strlen(choices[turn % 2]) + 1);
    int turn = 0;
    for (; turn < rounds || ((!ran || !refused) && turn < 20 * rounds); turn++) {
        pid_t child = fork();
        if (child == 0) {
            dup2(quiet, 1);
            execve(shared, words, none);
            _exit(126);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            ran++;
        else
            refused++;
    }
    kill(flipper, SIGKILL);
    printf("rounds %d ran %d refused %d marked %d\n", turn, ran, refused,
           access(MARKER, F_OK) == 0);
}

static void hold(const char *kind) {
    prepare(kind);
    puts("flipping");
    fflush(stdout);
    for (; access("stop", F_OK) < 0; usleep(20)) /* leaves some time for the other side */
        exchange("race/name", "race/other");
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[argc - 1]) : 0;
    if (argc == 4 && !strcmp(argv[1], "flip"))
        flip(argv[2], rounds);
    else if (argc == 4 && !strcmp(argv[1], "exec"))
        execute(argv[2], rounds);
    else if (argc == 3 && !strcmp(argv[1], "move"))
        move(rounds);
    else if (argc == 3 && !strcmp(argv[1], "hold"))
        hold(argv[2]);
    else
        return 2;
    return 0;
}
