/* Tries to change files outside the workspace and /tmp. The permissions of the image's files allow
 * every user to write the targets, so only the mounts and the kernel's rules refuse. */
#include "attempt.h"

#include <sys/xattr.h>
#include <utime.h>

/* Directory and file are world-writable. */
#define OPEN_DIRECTORY "/usr/share/open"
#define OPEN_FILE OPEN_DIRECTORY "/file"

static long put(int fd) {
    if (fd < 0)
        return -1;
    return write(fd, "0", 1) == 1 ? 0 : -1;
}

static long overwritten(void) { return put(open(OPEN_FILE, O_WRONLY)); }
static long appended(void) { return put(open(OPEN_FILE, O_WRONLY | O_APPEND)); }
static long truncated_at_open(void) { return open(OPEN_FILE, O_RDONLY | O_TRUNC); }
static long truncated_by_path(void) { return truncate(OPEN_FILE, 0); }
static long made(void) { return open(OPEN_DIRECTORY "/new", O_WRONLY | O_CREAT, 0666); }
static long made_unnamed(void) { return open(OPEN_DIRECTORY, O_WRONLY | O_TMPFILE, 0666); }
static long made_directory(void) { return mkdir(OPEN_DIRECTORY "/directory", 0777); }
static long made_link(void) { return symlink("/etc", OPEN_DIRECTORY "/link"); }
static long made_pipe(void) { return mkfifo(OPEN_DIRECTORY "/pipe", 0666); }
static long made_device(void) { return mknod("/tmp/disk", S_IFBLK | 0666, 7 << 8); }
static long removed(void) { return unlink(OPEN_FILE); }
static long renamed_away(void) { return rename(OPEN_FILE, "/workspace/taken"); }
static long renamed_there(void) {
    close(open("/tmp/there", O_WRONLY | O_CREAT, 0666));
    return rename("/tmp/there", OPEN_DIRECTORY "/there");
}
static long through_link(void) {
    unlink("to-open");
    if (symlink(OPEN_FILE, "to-open") < 0)
        return -1;
    return put(open("to-open", O_WRONLY));
}
static long through_proc(void) { return put(open("/proc/self/root" OPEN_FILE, O_WRONLY)); }
static long reopened(void) {
    char path[64];
    int fd = open(OPEN_FILE, O_PATH);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return put(open(path, O_WRONLY));
}
static long mode_changed(void) { return chmod(OPEN_FILE, 0777); }
static long time_changed(void) { return utime(OPEN_FILE, NULL); }
static long attribute_set(void) { return setxattr(OPEN_FILE, "user.x", "x", 1, 0); }
static long program_changed(void) { return put(open("/opt/paddock/__main__.py", O_WRONLY)); }
static long passwd_changed(void) { return put(open("/etc/passwd", O_WRONLY)); }
static long run_changed(void) { return put(open("/run/paddock/new", O_WRONLY | O_CREAT, 0600)); }
static long in_root(void) { return open("/new", O_WRONLY | O_CREAT, 0666); }
static long device_file(void) { return open("/dev/new", O_WRONLY | O_CREAT, 0666); }
static long shared_memory(void) { return open("/dev/shm/new", O_RDWR | O_CREAT, 0666); }
static long queue_file(void) { return open("/dev/mqueue/new", O_RDWR | O_CREAT, 0666); }

/* The kernel's files */

static long core_pattern(void) { return put(open("/proc/sys/kernel/core_pattern", O_WRONLY)); }
static long sysctl(void) { return put(open("/proc/sys/vm/overcommit_memory", O_WRONLY)); }
static long sysrq(void) { return put(open("/proc/sysrq-trigger", O_WRONLY)); }
static long control_group(void) {
    return put(open("/sys/fs/cgroup/memory/memory.limit_in_bytes", O_WRONLY)) < 0
               ? put(open("/sys/fs/cgroup/memory.max", O_WRONLY))
               : 0;
}
static long release_agent(void) {
    return put(open("/sys/fs/cgroup/memory/release_agent", O_WRONLY));
}
static long uevent_helper(void) { return put(open("/sys/kernel/uevent_helper", O_WRONLY)); }
static long oom_score(void) { return put(open("/proc/self/oom_score_adj", O_WRONLY)); }
static long user_mapping(void) { return put(open("/proc/self/uid_map", O_WRONLY)); }
static long agent_oom_score(void) { return put(open("/proc/1/oom_score_adj", O_WRONLY)); }
static long agent_memory(void) { return open("/proc/1/mem", O_RDWR); }

int main(void) {
    attempt("overwrite", overwritten);
    attempt("append", appended);
    attempt("truncate at open", truncated_at_open);
    attempt("truncate", truncated_by_path);
    attempt("new file", made);
    attempt("unnamed file", made_unnamed);
    attempt("new directory", made_directory);
    attempt("new link", made_link);
    attempt("new pipe", made_pipe);
    attempt("new device", made_device);
    attempt("remove", removed);
    attempt("rename from there", renamed_away);
    attempt("rename to there", renamed_there);
    attempt("through a link", through_link);
    attempt("through /proc", through_proc);
    attempt("O_PATH reopened", reopened);
    attempt("chmod", mode_changed);
    attempt("utime", time_changed);
    attempt("setxattr", attribute_set);
    attempt("agent's program", program_changed);
    attempt("/etc/passwd", passwd_changed);
    attempt("run directory", run_changed);
    attempt("file in /", in_root);
    attempt("file in /dev", device_file);
    attempt("file in /dev/shm", shared_memory);
    attempt("file in /dev/mqueue", queue_file);
    attempt("core_pattern", core_pattern);
    attempt("sysctl", sysctl);
    attempt("sysrq", sysrq);
    attempt("control group", control_group);
    attempt("release agent", release_agent);
    attempt("uevent helper", uevent_helper);
    attempt("OOM score", oom_score);
    attempt("uid map", user_mapping);
    attempt("agent's OOM score", agent_oom_score);
    attempt("agent's memory", agent_memory);
    return 0;
}
