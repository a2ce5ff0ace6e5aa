/* Opens paths beneath a directory, as beneath.py does, and decides whether operands stay there. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guard.h"

enum {
    MOST_LINKS = 40,
    MOST_DEPTH = 1024,
};

int open_beneath(int top, const char *path, int follow)
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

int stays(int workspace, const char *operand)
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
