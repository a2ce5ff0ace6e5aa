/* System calls that no command needs, each with arguments that would have an effect. */
#include "attempt.h"

#include <grp.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/uio.h>
#include <termios.h>

/* A child that waits until its parent attacks it. */
static char taken = 1;
static pid_t victim(void) {
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_SECONDS);
        pause();
        _exit(0);
    }
    return child;
}

static long done_with(pid_t child, long result) {
    int reason = errno;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    errno = reason;
    return result;
}

/* Other ways to make a system call */

#if defined(__x86_64__)
static long foreign(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
static char low_path[] = CANARY; /* within reach of a 32-bit address */
static long by_interrupt(void) {
    long fd = foreign(5 /* open */, (long)low_path, 0, 0);
    if (fd < 0) {
        errno = (int)-fd;
        return -1;
    }
    show((int)fd);
    return 0;
}
static long by_interrupt_harmless(void) {
    long pid = foreign(20 /* getpid */, 0, 0, 0);
    return pid == getpid() ? 0 : -1;
}
static long by_x32(void) {
    long fd = syscall(0x40000000 | SYS_open, CANARY, 0, 0);
    return fd < 0 ? -1 : (show((int)fd), 0);
}
static long by_x32_harmless(void) {
    return syscall(0x40000000 | SYS_getpid) == getpid() ? 0 : -1;
}
#endif

static long ring(void) {
    struct io_uring_params parameters = {0};
    return syscall(SYS_io_uring_setup, 4, &parameters);
}
static long memory_file(void) { return syscall(SYS_memfd_create, "x", 0); }
static long secret_memory(void) { return syscall(447 /* memfd_secret */, 0); }
static long segment(void) { return syscall(SYS_shmget, 0 /* IPC_PRIVATE */, 4096ul, 0700); }
static long semaphores(void) { return syscall(SYS_semget, 0, 1, 0700); }
static long queue(void) { return syscall(SYS_msgget, 0, 0700); }
static long queue_with_a_name(void) {
    return syscall(SYS_mq_open, "x", O_RDWR | O_CREAT, 0600, NULL);
}
static long fault_handler(void) { return syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC); }
static long bpf_map(void) {
    union bpf_attr attributes = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes);
}
static long bpf_program(void) {
    static const unsigned long instructions[] = {0xb7, 0x95};
    union bpf_attr attributes = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
                                 .insns = (unsigned long)instructions,
                                 .insn_cnt = 2,
                                 .license = (unsigned long)"GPL"};
    return syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes);
}
static long counter(void) {
    struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE,
                                         .size = sizeof attributes,
                                         .config = PERF_COUNT_SW_TASK_CLOCK,
                                         .exclude_kernel = 1};
    return syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
}
static long key_search(void) { return syscall(SYS_keyctl, 0, -3 /* session keyring */, 1); }
static long key_add(void) { return syscall(SYS_add_key, "user", "x", "y", 1, -4); }
static long key_request(void) { return syscall(SYS_request_key, "user", "x", NULL, -4); }
static long handle_made(void) {
    struct { struct file_handle head; unsigned char room[128]; } handle = {.head.handle_bytes = 128};
    int mount;
    return name_to_handle_at(AT_FDCWD, "/tmp", &handle.head, &mount, 0);
}
static long handle_opened(void) {
    struct { struct file_handle head; unsigned char room[128]; } handle = {
        .head = {.handle_bytes = 8, .handle_type = 1}, .room = {2}};
    int mount = open("/workspace", O_RDONLY | O_DIRECTORY);
    return open_by_handle_at(mount, &handle.head, O_RDONLY);
}

/* Other processes */

static long trace_attach(void) {
    pid_t child = victim();
    return done_with(child, ptrace(PTRACE_ATTACH, child, NULL, NULL));
}
static long trace_seize(void) {
    pid_t child = victim();
    return done_with(child, ptrace(PTRACE_SEIZE, child, NULL, NULL));
}
static long trace_me(void) { return ptrace(PTRACE_TRACEME, 0, NULL, NULL); }
static long vm_read(void) {
    pid_t child = victim();
    char byte;
    struct iovec here = {&byte, 1}, there = {&taken, 1};
    return done_with(child, process_vm_readv(child, &here, 1, &there, 1, 0));
}
static long vm_write(void) {
    pid_t child = victim();
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {&taken, 1};
    return done_with(child, process_vm_writev(child, &here, 1, &there, 1, 0));
}
static long descriptor_taken(void) {
    pid_t child = victim();
    int fd = (int)syscall(434 /* pidfd_open */, child, 0);
    return done_with(child, syscall(438 /* pidfd_getfd */, fd, 0, 0));
}

/* Mounts, roots and namespaces */

static long mount_tmpfs(void) { return mount("none", "/tmp", "tmpfs", 0, NULL); }
static long mount_bind(void) { return mount("/", "/tmp", NULL, MS_BIND, NULL); }
static long remount(void) { return mount(NULL, "/tmp", NULL, MS_REMOUNT | MS_BIND, NULL); }
static long unmount(void) { return umount2("/etc/passwd", MNT_DETACH); }
static long root_pivoted(void) { return syscall(SYS_pivot_root, "/tmp", "/tmp"); }
static long root_changed(void) { return chroot("/tmp"); }
static long tree_opened(void) { return syscall(428, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */); }
static long tree_path(void) { return syscall(428, AT_FDCWD, "/usr/share", 0); }
static long mount_moved(void) {
    int fd = open("/tmp", O_PATH);
    return syscall(429, fd, "", AT_FDCWD, "/workspace", 4 /* MOVE_MOUNT_F_EMPTY_PATH */);
}
static long system_opened(void) { return syscall(430, "tmpfs", 0); }
static long system_picked(void) { return syscall(433, AT_FDCWD, "/tmp", 0); }
static long flags_changed(void) {
    struct { unsigned long set, clear, propagation, user; } attributes = {.clear = 8 /* NOEXEC */};
    return syscall(442, AT_FDCWD, "/tmp", 0, &attributes, sizeof attributes);
}
static long unshare_user(void) { return unshare(CLONE_NEWUSER); }
static long unshare_mount(void) { return unshare(CLONE_NEWNS); }
static long unshare_network(void) { return unshare(CLONE_NEWNET); }
static long unshare_pid(void) { return unshare(CLONE_NEWPID); }
static long clone_user(void) {
    pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child;
}
static long clone3_user(void) {
    struct { unsigned long flags, rest[10]; } arguments = {.flags = CLONE_NEWUSER};
    arguments.rest[3] = SIGCHLD;
    pid_t child = (pid_t)syscall(435, &arguments, 64);
    if (child == 0)
        _exit(0);
    return child;
}
static long namespace_entered(void) {
    return setns(open("/proc/1/ns/mnt", O_RDONLY), 0);
}
static long own_namespace_entered(void) { return setns(open("/proc/self/ns/uts", O_RDONLY), 0); }

/* Privileges */

static long user_root(void) { return setuid(0); }
static long group_root(void) { return setgid(0); }
static long all_root(void) { return setresuid(0, 0, 0); }
static long groups_root(void) { return setgroups(1, (gid_t[]){0}); }
static long other_user(void) { return setuid(getuid() + 1); }
static long capabilities(void) {
    struct { unsigned version; int pid; } head = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2] = {{~0u, ~0u, 0}, {~0u, ~0u, 0}};
    return syscall(SYS_capset, &head, data);
}
static long ambient(void) { return prctl(47 /* PR_CAP_AMBIENT */, 2, 21, 0, 0); }
static long privileges_again(void) { return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); }
static long secure_bits(void) { return prctl(PR_SET_SECUREBITS, 0x2f, 0, 0, 0); }
static long filter_off(void) { return prctl(PR_SET_SECCOMP, 0, 0, 0, 0); }
static long mapping_changed(void) { return prctl(PR_SET_MM, 8 /* ARG_START */, &taken, 0, 0); }
static long higher_limit(void) {
    unsigned long limit[2] = {1 << 20, 1 << 20};
    return syscall(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, limit, NULL);
}
static long more_processes(void) {
    unsigned long limit[2] = {~0ul, ~0ul};
    return syscall(SYS_prlimit64, 0, 6 /* RLIMIT_NPROC */, limit, NULL);
}
static long priority(void) { return syscall(SYS_setpriority, 0, 0, -10); }
static long real_time(void) {
    struct sched_param parameter = {.sched_priority = 1};
    return sched_setscheduler(0, SCHED_FIFO, &parameter);
}

/* The machine */

static long host_name(void) { return sethostname("x", 1); }
static long clock_set(void) { return syscall(SYS_clock_settime, 0, (long[]){0, 0}); }
static long kernel_log(void) {
    char buffer[1024];
    return syscall(SYS_syslog, 3 /* READ_ALL */, buffer, sizeof buffer);
}
static long restarted(void) { return syscall(SYS_reboot, 0xfee1dead, 672274793, RB_DISABLE_CAD, 0); }
static long module_loaded(void) { return syscall(SYS_init_module, "", 0ul, ""); }
static long swapped(void) { return syscall(SYS_swapon, "/workspace/swap", 0); }
static long accounted(void) { return syscall(SYS_acct, "/workspace/accounts"); }
static long watched(void) { return fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY); }
static long quota(void) { return syscall(SYS_quotactl, 0x800002 << 8, "/dev/sda", 0, NULL); }
#if defined(__x86_64__)
static long ports(void) { return syscall(SYS_iopl, 3); }
#endif

/* Terminals: putting characters into the input of the process that started this program */

static long typed(const char *path) {
    int fd = path ? open(path, O_RDWR) : 0;
    return fd < 0 ? -1 : ioctl(fd, TIOCSTI, "x");
}
static long typed_to_tty(void) { return typed("/dev/tty"); }
static long typed_to_console(void) { return typed("/dev/console"); }
static long typed_to_input(void) { return typed(NULL); }
static long typed_to_own_terminal(void) {
    int master = posix_openpt(O_RDWR);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        return -1;
    setsid();
    int slave = open(ptsname(master), O_RDWR);
    if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
        return -1;
    return ioctl(slave, TIOCSTI, "x");
}
static long selected(void) {
    int fd = open("/dev/tty", O_RDWR);
    return fd < 0 ? -1 : ioctl(fd, TIOCLINUX, "\4");
}

#define TRY(name) attempt(#name, name)

int main(void) {
#if defined(__x86_64__)
    TRY(by_interrupt), TRY(by_interrupt_harmless), TRY(by_x32), TRY(by_x32_harmless), TRY(ports);
#endif
    TRY(ring), TRY(memory_file), TRY(secret_memory), TRY(segment), TRY(semaphores), TRY(queue),
        TRY(queue_with_a_name), TRY(fault_handler);
    TRY(bpf_map), TRY(bpf_program), TRY(counter), TRY(key_search), TRY(key_add), TRY(key_request);
    TRY(handle_made), TRY(handle_opened);
    TRY(trace_attach), TRY(trace_seize), TRY(trace_me), TRY(vm_read), TRY(vm_write);
    TRY(descriptor_taken);
    TRY(mount_tmpfs), TRY(mount_bind), TRY(remount), TRY(unmount), TRY(root_pivoted);
    TRY(root_changed), TRY(tree_opened), TRY(tree_path), TRY(mount_moved), TRY(system_opened);
    TRY(system_picked), TRY(flags_changed), TRY(unshare_user), TRY(unshare_mount);
    TRY(unshare_network), TRY(unshare_pid), TRY(clone_user), TRY(clone3_user);
    TRY(namespace_entered), TRY(own_namespace_entered);
    TRY(user_root), TRY(group_root), TRY(all_root), TRY(groups_root), TRY(other_user);
    TRY(capabilities), TRY(ambient), TRY(privileges_again), TRY(secure_bits), TRY(filter_off);
    TRY(mapping_changed), TRY(higher_limit), TRY(more_processes), TRY(priority), TRY(real_time);
    TRY(host_name), TRY(clock_set), TRY(kernel_log), TRY(restarted), TRY(module_loaded);
    TRY(swapped), TRY(accounted), TRY(watched), TRY(quota);
    TRY(typed_to_tty), TRY(typed_to_console), TRY(typed_to_input), TRY(typed_to_own_terminal);
    TRY(selected);
    return 0;
}
