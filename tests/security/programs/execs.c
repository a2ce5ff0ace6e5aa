/* Executes programs that no list names. `execs forbidden`: programs of the image. `execs own
 * DIRECTORY`: files that the session itself has put there. */
#include "attempt.h"

#include <sys/mman.h>

#define FORBIDDEN "/usr/local/bin/forbidden"
#define FORBIDDEN_DYNAMIC "/usr/local/bin/forbidden-dynamic"
#define FORBIDDEN_LIBRARY "/usr/local/lib/forbidden.so"
#if defined(__x86_64__)
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#else
#define LOADER "/lib/ld-linux-aarch64.so.1"
#endif

static char *const none[] = {NULL};
static char *const words[] = {"payload", NULL};

static long run(const char *path) { return execve(path, words, none); }

static long run_by_fd(int fd) {
    char path[64];
    if (fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return run(path);
}

static long load(const char *path, const char *loader) {
    char *argv[] = {(char *)loader, (char *)path, NULL};
    return execve(loader, argv, none);
}

static long preload(const char *variable, const char *path) {
    char setting[256];
    char *argv[] = {"ls", NULL};
    char *environment[] = {setting, NULL};
    snprintf(setting, sizeof setting, "%s=%s", variable, path);
    return execve("/bin/ls", argv, environment);
}

/* Programs of the image */

static long direct(void) { return run(FORBIDDEN); }
static long by_path(void) { return execlp("forbidden", "forbidden", NULL); }
static long slashes(void) { return run("//usr///local/bin//./forbidden"); }
static long dots(void) { return run("../usr/local/bin/../bin/forbidden"); }
static long proc_root(void) { return run("/proc/self/root" FORBIDDEN); }
static long link_to_it(void) {
    unlink("link");
    if (symlink(FORBIDDEN, "link") < 0)
        return -1;
    return run("./link");
}
static long hard_link(void) {
    unlink("hard");
    if (link(FORBIDDEN, "hard") < 0)
        return -1;
    return run("./hard");
}
static long path_fd(void) { return run_by_fd(open(FORBIDDEN, O_PATH)); }
static long at_empty_path(void) {
    int fd = open(FORBIDDEN, O_PATH);
    return syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
}
static long at_directory(void) {
    int fd = open("/usr/local/bin", O_PATH | O_DIRECTORY);
    return syscall(SYS_execveat, fd, "forbidden", words, none, 0);
}
static long change_directory(void) {
    /* There the program would make its marker; the open descriptor leads back. */
    int back = open(".", O_PATH | O_DIRECTORY);
    if (chdir("/usr/local/bin") < 0 || back < 0)
        return -1;
    int fd = open("forbidden", O_PATH);
    if (fchdir(back) < 0)
        return -1;
    return run_by_fd(fd);
}
static long loader(void) { return load(FORBIDDEN_DYNAMIC, LOADER); }
static long loader_through_link(void) {
    unlink("loader");
    if (symlink(LOADER, "loader") < 0)
        return -1;
    return load("/proc/self/root" FORBIDDEN_DYNAMIC, "./loader");
}
static long loader_preloads(void) {
    char *argv[] = {LOADER, "--preload", FORBIDDEN_LIBRARY, "/bin/ls", NULL};
    return execve(LOADER, argv, none);
}
static long image_preload(void) { return preload("LD_PRELOAD", FORBIDDEN_LIBRARY); }
static long image_audit(void) { return preload("LD_AUDIT", FORBIDDEN_LIBRARY); }
static long copied(void) {
    int fd = copy(FORBIDDEN, "copied", O_CREAT | O_TRUNC);
    if (fd < 0)
        return -1;
    close(fd);
    return run("./copied");
}
static long by_find(void) {
    char *argv[] = {"find", "/workspace", "-maxdepth", "0", "-exec", FORBIDDEN, ";", NULL};
    return execve("/usr/bin/find", argv, none);
}
static long by_env(void) {
    char *argv[] = {"env", FORBIDDEN, NULL};
    return execve("/usr/bin/env", argv, none);
}
static long by_shell(void) {
    char *argv[] = {"sh", "-c", "> " MARKER, NULL};
    return execve("/bin/sh", argv, none);
}
static long by_perl(void) {
    char *argv[] = {"perl", "-e", "open F, '>', '" MARKER "'", NULL};
    return execve("/usr/bin/perl", argv, none);
}
static long by_tar(void) {
    char *argv[] = {"tar", "-cf", "/dev/null", "--checkpoint=1",
                    "--checkpoint-action=exec=" FORBIDDEN, "/workspace", NULL};
    return execve("/bin/tar", argv, none);
}

/* The session's own files */

static char own[4][256]; /* a static program, a dynamic one, a library, a script */

static const char *own_file(int kind, const char *directory, const char *name) {
    snprintf(own[kind], sizeof own[kind], "%s/%s", directory, name);
    return own[kind];
}

static const char *place;
static long own_program(void) { return run(own[0]); }
static long own_through_proc(void) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/root%s", own[0]);
    return run(path);
}
static long own_fd(void) { return run_by_fd(open(own[0], O_RDONLY)); }
static long own_path_fd(void) { return run_by_fd(open(own[0], O_PATH)); }
static long own_at_fd(void) {
    int fd = open(own[0], O_RDONLY);
    return syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
}
static long own_loader(void) { return load(own[1], LOADER); }
static long own_preload(void) { return preload("LD_PRELOAD", own[2]); }
static long own_audit(void) { return preload("LD_AUDIT", own[2]); }
static long own_script(void) {
    int fd = open(own[3], O_WRONLY | O_CREAT | O_TRUNC, 0755);
    dprintf(fd, "#!/bin/sh\n> " MARKER "\n");
    close(fd);
    return run(own[3]);
}
static long own_script_of_allowed(void) {
    int fd = open(own[3], O_WRONLY | O_CREAT | O_TRUNC, 0755);
    dprintf(fd, "#!/usr/bin/touch " MARKER "\n");
    close(fd);
    return run(own[3]);
}
static long own_deleted(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/deleted", place);
    int fd = copy(own[0], path, O_CREAT | O_TRUNC);
    if (fd < 0)
        return -1;
    close(fd);
    fd = open(path, O_RDONLY);
    unlink(path);
    return run_by_fd(fd);
}
static long own_unnamed(void) {
    int fd = copy(own[0], place, O_TMPFILE);
    if (fd < 0)
        return -1;
    /* A file that is open for writing can't be executed. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY);
    close(fd);
    return run_by_fd(again);
}
static long into_memory(int fd) {
    char buffer[65536];
    int from = open(own[0], O_RDONLY);
    if (fd < 0 || from < 0)
        return -1;
    ssize_t count = read(from, buffer, sizeof buffer);
    return count > 0 && write(fd, buffer, (size_t)count) == count ? 0 : -1;
}
static long own_memory_file(void) {
    int fd = (int)syscall(SYS_memfd_create, "x", 1 /* MFD_CLOEXEC */);
    if (into_memory(fd) < 0)
        return -1;
    return run_by_fd(fd);
}
static long own_memory_file_at(void) {
    int fd = (int)syscall(SYS_memfd_create, "x", 1);
    if (into_memory(fd) < 0)
        return -1;
    return syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
}

static void forbidden(void) {
    attempt_exec("direct", direct);
    attempt_exec("by PATH", by_path);
    attempt_exec("slashes", slashes);
    attempt_exec("dots", dots);
    attempt_exec("/proc/self/root", proc_root);
    attempt_exec("symbolic link", link_to_it);
    attempt_exec("hard link", hard_link);
    attempt_exec("O_PATH descriptor", path_fd);
    attempt_exec("execveat of a descriptor", at_empty_path);
    attempt_exec("execveat in a directory", at_directory);
    attempt_exec("change of directory", change_directory);
    attempt_exec("loader", loader);
    attempt_exec("loader through a link", loader_through_link);
    attempt_exec("loader --preload", loader_preloads);
    attempt_exec("LD_PRELOAD", image_preload);
    attempt_exec("LD_AUDIT", image_audit);
    attempt_exec("copy", copied);
    attempt_exec("find -exec", by_find);
    attempt_exec("env", by_env);
    attempt_exec("sh", by_shell);
    attempt_exec("perl", by_perl);
    attempt_exec("tar", by_tar);
}

static void owned(const char *directory) {
    place = directory;
    const char *names[] = {"payload", "payload-dynamic", "payload.so"};
    for (int kind = 0; kind < 3; kind++) {
        char source[64];
        snprintf(source, sizeof source, "/workspace/%s", names[kind]);
        own_file(kind, directory, names[kind]);
        if (strcmp(source, own[kind])) {
            int fd = (int)copy(source, own[kind], O_CREAT | O_TRUNC);
            if (fd < 0)
                exit(4);
            close(fd); /* a file that is open for writing can't be executed */
        }
        if (chmod(own[kind], 0755) < 0)
            exit(4);
    }
    own_file(3, directory, "script");
    attempt_exec("program", own_program);
    attempt_exec("program through /proc", own_through_proc);
    attempt_exec("descriptor", own_fd);
    attempt_exec("O_PATH descriptor", own_path_fd);
    attempt_exec("execveat", own_at_fd);
    attempt_exec("loader", own_loader);
    attempt_exec("LD_PRELOAD", own_preload);
    attempt_exec("LD_AUDIT", own_audit);
    attempt_exec("script", own_script);
    attempt_exec("script of an allowed program", own_script_of_allowed);
    attempt_exec("deleted file", own_deleted);
    attempt_exec("unnamed file", own_unnamed);
    attempt_exec("memory file", own_memory_file);
    attempt_exec("memory file by execveat", own_memory_file_at);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "forbidden"))
        forbidden();
    else if (argc == 3 && !strcmp(argv[1], "own"))
        owned(argv[2]);
    else
        return 2;
    return 0;
}
