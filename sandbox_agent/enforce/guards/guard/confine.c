/* The guard's own confinement, which is that of its commands, and the users that it acts as. */

#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard.h"

void act_as(uid_t uid)
{
    if (uid == 0 && syscall(SYS_setresuid, -1, 0, -1) < 0)
        give_up("setresuid");
    if (syscall(SYS_setresgid, -1, uid, -1) < 0)
        give_up("setresgid");
    if (uid != 0 && syscall(SYS_setresuid, -1, uid, -1) < 0)
        give_up("setresuid");
}

/* Enters the filter; returns its listener. */
static int enter_filter(const struct setup *setup)
{
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
    return listener;
}

void confine(struct setup *setup)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        give_up("no_new_privs");
    if (syscall(SYS_landlock_restrict_self, setup->ruleset, 0) < 0)
        give_up("landlock");
    close(setup->ruleset);
    int listener = enter_filter(setup);
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
