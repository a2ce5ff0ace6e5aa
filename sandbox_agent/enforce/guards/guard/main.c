/* Sets the guard up, and receives one command after the other. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guard.h"

enum {
    LEAST_STREAMS = 3,
    DESCRIPTORS = MOST_STREAMS + 1, /* of a plan: the streams, and the document */
};

/* Receives one message with its descriptors; returns its size, which is 0 or less at the end. */
static ssize_t receive(int starter, char *text, size_t most, int *given, size_t *count)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int) * DESCRIPTORS)];
    } control;
    struct iovec part = {text, most};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t size = recvmsg(starter, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *count = 0;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        *count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(given, CMSG_DATA(header), *count * sizeof(int));
    }
    return size;
}

/* Receives the next command and runs it to its end; returns 0 when the guard is not needed. */
static int serve(const struct setup *setup, struct command *command, int ended)
{
    char text[MOST_BYTES], wanted[MOST_BYTES];
    int given[DESCRIPTORS];
    size_t count;
    *command = (struct command){.number = command->number + 1};
    int length =
        snprintf(wanted, sizeof wanted, "p%llu", (unsigned long long)command->number);
    for (;;) {
        ssize_t size = receive(setup->starter, text, sizeof text, given, &count);
        if (size <= 0)
            return 0;
        int mine = size == length && memcmp(text, wanted, (size_t)length) == 0, running = 0;
        if (mine) {
            if (count > LEAST_STREAMS)
                running = start(setup, command, given[count - 1], given, count - 1);
            else
                report_unstarted(setup, START, EINVAL);
        }
        for (size_t i = 0; i < count; i++)
            close(given[i]);
        if (mine)
            return running ? attend(setup, command, ended) : 1;
    }
}

static void read_arguments(struct setup *setup, char **argv)
{
    uint64_t numbers[8];
    for (int i = 0; i < 8; i++)
        if (!parse_number(argv[i], strlen(argv[i]), i < 7 ? UINT32_MAX : UINT64_MAX, &numbers[i]))
            give_up("arguments");
    *setup = (struct setup){
        .agent = (int)numbers[0], .starter = (int)numbers[1], .preference = (int)numbers[2],
        .ruleset = (int)numbers[3], .filter = (int)numbers[4], .uid = (uid_t)numbers[5],
        .deny_writable_code = numbers[6] != 0, .full_bytes = numbers[7], .workspace = argv[8],
    };
    if (setup->uid == 0)
        give_up("uid");
    for (int i = 0; i < 5; i++)
        if (fcntl((int)numbers[i], F_SETFD, FD_CLOEXEC) < 0)
            give_up("descriptors");
    ssize_t size =
        pread(setup->preference, setup->own_preference, sizeof setup->own_preference - 1, 0);
    if (size <= 0)
        give_up("oom_score_adj");
    setup->own_preference[size] = '\0';
}

int main(int argc, char **argv)
{
    struct setup setup;
    struct command command = {0};
    if (argc != 10)
        give_up("arguments");
    read_arguments(&setup, argv + 1);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &children, NULL) < 0)
        give_up("sigprocmask");
    int ended = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ended < 0)
        give_up("signalfd");
    confine(&setup);
    while (serve(&setup, &command, ended))
        continue;
    return 0;
}
