/* Reads the image's canary, which every user may read, in every possible way; with an argument, the
 * file of that name on the host, or anything visible of it. */
#include "attempt.h"

#include <dirent.h>
#include <linux/openat2.h>

static long direct(void) { return show(open(CANARY, O_RDONLY)); }
static long slashes(void) { return show(open("//usr///share//./canary", O_RDONLY)); }
static long dots(void) { return show(open("/workspace/../usr/share/../share/canary", O_RDONLY)); }
static long relative(void) { return show(open("../usr/share/canary", O_RDONLY)); }
static long proc_root(void) { return show(open("/proc/self/root" CANARY, O_RDONLY)); }
static long proc_cwd(void) { return show(open("/proc/self/cwd/.." CANARY, O_RDONLY)); }
static long proc_thread(void) { return show(open("/proc/thread-self/root" CANARY, O_RDONLY)); }
static long proc_parent(void) {
    char path[128];
    snprintf(path, sizeof path, "/proc/%d/root" CANARY, getppid());
    return show(open(path, O_RDONLY));
}
static long proc_first(void) { return show(open("/proc/1/root" CANARY, O_RDONLY)); }
static long link_to_it(void) {
    unlink("to-canary");
    if (symlink(CANARY, "to-canary") < 0)
        return -1;
    return show(open("to-canary", O_RDONLY));
}
static long chain(void) {
    unlink("to-directory");
    unlink("to-link");
    if (symlink("/usr", "to-directory") < 0 || symlink("to-directory/share", "to-link") < 0)
        return -1;
    return show(open("to-link/canary", O_RDONLY));
}
static long reopened(void) {
    char path[64];
    int fd = open(CANARY, O_PATH);
    if (fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return show(open(path, O_RDONLY));
}
static long from_directory(void) {
    int fd = open("/usr/share", O_PATH | O_DIRECTORY);
    return show(openat(fd, "canary", O_RDONLY));
}
static long changed_directory(void) {
    if (chdir("/usr/share") < 0)
        return -1;
    return show(open("canary", O_RDONLY));
}
static long empty_path(void) {
    int fd = open(CANARY, O_PATH);
    struct open_how how = {.flags = O_RDONLY};
    return show((int)syscall(SYS_openat2, fd, "", &how, sizeof how));
}
static long openat2_in_root(void) {
    int root = open("/", O_PATH | O_DIRECTORY);
    struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT};
    return show((int)syscall(SYS_openat2, root, CANARY, &how, sizeof how));
}
static long hard_link(void) {
    if (link(CANARY, "hard-canary") < 0)
        return -1;
    return show(open("hard-canary", O_RDONLY));
}
static long hard_link_of_descriptor(void) {
    char path[64];
    int fd = open(CANARY, O_PATH);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, path, AT_FDCWD, "hard-canary-2", AT_SYMLINK_FOLLOW) < 0)
        return -1;
    return show(open("hard-canary-2", O_RDONLY));
}
static long renamed(void) {
    if (rename(CANARY, "/workspace/canary") < 0)
        return -1;
    return show(open("/workspace/canary", O_RDONLY));
}
static long with_shared_descriptors(void) {
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD | 0x400 /* CLONE_FILES */, 0, 0, 0, 0);
    if (child == 0)
        _exit(show(open(CANARY, O_RDONLY)) == 0 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    return status ? -1 : 0;
}
static long listing(void) {
    DIR *directory = opendir("/usr/share");
    if (directory == NULL)
        return -1;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strstr(entry->d_name, "canary"))
            return 0;
    errno = ENOENT;
    return -1;
}
static long inherited(void) {
    /* Only the standard streams may be inherited. */
    for (int fd = 3; fd < 1024; fd++) {
        struct stat status;
        if (fstat(fd, &status) == 0)
            return 0;
    }
    errno = EBADF;
    return -1;
}

/* Programs that a level allows, with words that its rules would refuse */

static long program(char *const argv[]) {
    static char *const environment[] = {NULL};
    int output[2];
    if (pipe(output) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(output[1], 1);
        dup2(output[1], 2);
        execve(argv[0], argv, environment);
        _exit(127);
    }
    close(output[1]);
    char said[65536];
    size_t length = 0;
    for (ssize_t count; (count = read(output[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)count;
    said[length] = 0;
    fwrite(said, 1, length, stdout); /* the test looks for the canary in it */
    fputc('\n', stdout);
    waitpid(child, NULL, 0);
    errno = EACCES;
    return strstr(said, "canary-of-the-image") ? 0 : -1;
}
#define RUN(...)                                                                                   \
    char *argv[] = {__VA_ARGS__, NULL};                                                            \
    return program(argv)
static long by_cat(void) { RUN("/bin/cat", CANARY); }
static long by_head(void) { RUN("/usr/bin/head", "/proc/self/root" CANARY); }
static long by_grep(void) { RUN("/bin/grep", "-rs", "canary", "/usr/share/canary"); }
static long by_patterns(void) { RUN("/bin/grep", "-f", CANARY, CANARY); }
static long by_copy(void) {
    char *copying[] = {"/bin/cp", CANARY, "/workspace/copy", NULL};
    program(copying);
    return show(open("/workspace/copy", O_RDONLY));
}
static long by_link(void) {
    char *linking[] = {"/bin/cp", "-l", CANARY, "/workspace/linked", NULL};
    program(linking);
    return show(open("/workspace/linked", O_RDONLY));
}
static long by_curl(void) { RUN("/usr/bin/curl", "-s", "file://" CANARY); }
static long by_curl_config(void) { RUN("/usr/bin/curl", "-v", "-K", CANARY); }
static long by_date(void) { RUN("/bin/date", "-f", CANARY); }
static long by_names(void) { RUN("/usr/bin/wc", "--files0-from=" CANARY); }

/* A file that is not in this sandbox at all */

static const char *elsewhere;

static long below(const char *root) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", root, elsewhere);
    return show(open(path, O_RDONLY));
}
static long other_direct(void) { return below(""); }
static long other_root(void) { return below("/proc/self/root"); }
static long other_first(void) { return below("/proc/1/root"); }
static long other_dots(void) { return below("../../../../../../../../.."); }
static long other_link(void) {
    unlink("elsewhere");
    if (symlink(elsewhere, "elsewhere") < 0)
        return -1;
    return show(open("elsewhere", O_RDONLY));
}

static int read_elsewhere(const char *path) {
    elsewhere = path;
    attempt("direct", other_direct);
    attempt("/proc/self/root", other_root);
    attempt("first process's root", other_first);
    attempt("dots", other_dots);
    attempt("symbolic link", other_link);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2)
        return read_elsewhere(argv[1]);
    attempt("direct", direct);
    attempt("slashes", slashes);
    attempt("dots", dots);
    attempt("relative", relative);
    attempt("/proc/self/root", proc_root);
    attempt("/proc/self/cwd", proc_cwd);
    attempt("/proc/thread-self/root", proc_thread);
    attempt("parent's root", proc_parent);
    attempt("first process's root", proc_first);
    attempt("symbolic link", link_to_it);
    attempt("chain of links", chain);
    attempt("O_PATH reopened", reopened);
    attempt("openat", from_directory);
    attempt("change of directory", changed_directory);
    attempt("openat2 of a descriptor", empty_path);
    attempt("openat2 in root", openat2_in_root);
    attempt("hard link", hard_link);
    attempt("hard link of a descriptor", hard_link_of_descriptor);
    attempt("rename", renamed);
    attempt("clone", with_shared_descriptors);
    attempt("listing", listing);
    attempt("inherited descriptors", inherited);
    attempt("cat", by_cat);
    attempt("head", by_head);
    attempt("grep", by_grep);
    attempt("grep -f", by_patterns);
    attempt("cp", by_copy);
    attempt("cp -l", by_link);
    attempt("curl file:", by_curl);
    attempt("curl -K", by_curl_config);
    attempt("date -f", by_date);
    attempt("wc --files0-from", by_names);
    return 0;
}
