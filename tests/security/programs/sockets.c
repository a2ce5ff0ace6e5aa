/* Makes sockets of every kind, and tries to leave the sandbox through them. */
#include <sys/ioctl.h>
#include <net/if.h>
#include "attempt.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
/* More than any kernel knows; it refuses unknown families like forbidden ones. */
#define FAMILIES 64

static int family, kind, protocol;
static long made(void) { return socket(family, kind, protocol); }
static long paired(void) {
    int pair[2];
    return socketpair(family, kind, protocol, pair);
}

static void make(const char *name, int a_family, int a_kind, int a_protocol) {
    family = a_family, kind = a_kind, protocol = a_protocol;
    attempt(name, made);
}

static void every_family(void) {
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_RDM};
    for (int number = 0; number < FAMILIES; number++)
        for (unsigned which = 0; which < sizeof kinds / sizeof *kinds; which++) {
            char name[64];
            if (number == AF_UNIX || number == AF_INET || number == AF_INET6 ||
                number == AF_NETLINK)
                continue;
            snprintf(name, sizeof name, "family %d kind %d", number, kinds[which]);
            make(name, number, kinds[which], 0);
        }
}

static struct sockaddr_in to(const char *address, int port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    inet_pton(AF_INET, address, &there.sin_addr);
    return there;
}
static long connected(const char *address, int port) {
    struct sockaddr_in there = to(address, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return connect(fd, (struct sockaddr *)&there, sizeof there);
}
static long sent(const char *address, int port) {
    struct sockaddr_in there = to(address, port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return sendto(fd, "x", 1, 0, (struct sockaddr *)&there, sizeof there);
}
static long fast_open(const char *address, int port) {
    struct sockaddr_in there = to(address, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&there, sizeof there);
}
static long internet(void) { return connected("1.1.1.1", 443); }
static long metadata(void) { return connected("169.254.169.254", 80); }
static long host(void) { return connected("172.17.0.1", 22); }
static long datagram(void) { return sent("8.8.8.8", 53); }
static long datagram_to_host(void) { return sent("172.17.0.1", 53); }
static long broadcast(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in there = to("255.255.255.255", 9);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    return sendto(fd, "x", 1, 0, (struct sockaddr *)&there, sizeof there);
}
static long multicast(void) { return sent("224.0.0.1", 9); }
static long fast(void) { return fast_open("1.1.1.1", 443); }
static long internet_v6(void) {
    struct sockaddr_in6 there = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
    inet_pton(AF_INET6, "2606:4700:4700::1111", &there.sin6_addr);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return connect(fd, (struct sockaddr *)&there, sizeof there);
}
static long local(const char *path) {
    struct sockaddr_un there = {.sun_family = AF_UNIX};
    strncpy(there.sun_path, path, sizeof there.sun_path - 1);
    return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&there, sizeof there);
}
static long control_socket(void) { return local("/run/paddock/control.sock"); }
static long control_socket_by_proc(void) { return local("/proc/1/root/run/paddock/control.sock"); }
static long engine_socket(void) { return local("/var/run/docker.sock"); }

static long interface_down(void) {
    struct ifreq wanted = {.ifr_name = "lo"};
    return ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &wanted);
}

int main(void) {
    every_family();
    make("vsock", 40, SOCK_STREAM, 0);
    make("vsock datagrams", 40, SOCK_DGRAM, 0);
    make("netlink routes", AF_NETLINK, SOCK_RAW, 0);
    make("netlink audit", AF_NETLINK, SOCK_RAW, 9);
    make("netlink events", AF_NETLINK, SOCK_DGRAM, 15);
    make("packets", AF_PACKET, SOCK_RAW, htons(3));
    make("raw", AF_INET, SOCK_RAW, IPPROTO_ICMP);
    make("raw IPv6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
    make("raw IP", AF_INET, SOCK_RAW, IPPROTO_RAW);
    make("MPTCP", AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    make("MPTCP IPv6", AF_INET6, SOCK_STREAM, IPPROTO_MPTCP);
    make("SCTP", AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    make("SCTP packets", AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    make("DCCP", AF_INET, SOCK_DCCP, IPPROTO_DCCP);
    make("UDP-Lite", AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE);
    make("SMC", AF_INET, SOCK_STREAM, 256);
    make("default of packets", AF_INET, SOCK_SEQPACKET, 0);
    make("default of DCCP", AF_INET, SOCK_DCCP, 0);
    make("crypto", AF_ALG, SOCK_SEQPACKET, 0);
    family = AF_NETLINK, kind = SOCK_RAW, protocol = 0;
    attempt("pair of another family", paired);
    attempt("interface down", interface_down);
    attempt("internet", internet);
    attempt("internet by IPv6", internet_v6);
    attempt("metadata", metadata);
    attempt("host", host);
    attempt("datagram", datagram);
    attempt("datagram to the host", datagram_to_host);
    attempt("broadcast", broadcast);
    attempt("multicast", multicast);
    attempt("fast open", fast);
    attempt("control socket", control_socket);
    attempt("control socket by /proc", control_socket_by_proc);
    attempt("engine's socket", engine_socket);
    return 0;
}
