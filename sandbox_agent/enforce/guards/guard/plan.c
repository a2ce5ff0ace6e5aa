/* Reads what the agent sends: plans and orders. Nothing is read before it is known to be there. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "guard.h"

enum {
    MOST_PLAN = 16 << 20,
    MOST_WORDS = 1 << 20,
    SINGLE = 3, /* workspace, directory and program come before the vectors */
};

int parse_number(const char *text, size_t size, uint64_t most, uint64_t *number)
{
    *number = 0;
    if (size == 0 || size > 18)
        return 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    }
    return *number <= most;
}

/* `t N`, `k N` or `s<signal> N`. */
int parse_order(const char *text, size_t size, struct order *order)
{
    const char *space = memchr(text, ' ', size);
    if (space == NULL)
        return 0;
    size_t head = (size_t)(space - text);
    uint64_t signal = 0;
    order->kind = text[0];
    if (order->kind == 's' ? head > 4 || !parse_number(text + 1, head - 1, 999, &signal)
                           : head != 1 || (order->kind != 't' && order->kind != 'k'))
        return 0;
    order->signal = (int)signal;
    return parse_number(space + 1, size - head - 1, UINT64_MAX, &order->number);
}

int parse_plan(char *data, size_t size, struct plan *plan)
{
    uint32_t head[4]; /* the counts of arguments, variables and operands, and `terminal` */
    if (size > MOST_PLAN)
        return E2BIG;
    if (size <= sizeof head || data[size - 1] != '\0')
        return EINVAL;
    memcpy(head, data, sizeof head);
    uint64_t words = (uint64_t)head[0] + head[1] + head[2];
    if (head[0] == 0 || head[3] > 1 || words + SINGLE > size - sizeof head)
        return EINVAL;
    if (words > MOST_WORDS)
        return E2BIG;
    char **next = calloc(words + SINGLE, sizeof *next), *rest = data + sizeof head;
    char *end = data + size, *single[SINGLE];
    if (next == NULL)
        return ENOMEM;
    plan->argc = head[0], plan->envc = head[1], plan->operands = head[2];
    plan->terminal = (int)head[3];
    plan->argv = next, plan->envp = next + head[0] + 1, plan->inside = plan->envp + head[1] + 1;
    for (uint64_t i = 0; i < words + SINGLE && rest < end; i++) {
        uint64_t j = i - SINGLE;
        if (i < SINGLE)
            single[i] = rest;
        else if (j < head[0])
            plan->argv[j] = rest;
        else if (j - head[0] < head[1])
            plan->envp[j - head[0]] = rest;
        else
            plan->inside[j - head[0] - head[1]] = rest;
        rest = (char *)memchr(rest, '\0', (size_t)(end - rest)) + 1;
        if (i == words + SINGLE - 1 && rest == end) {
            plan->workspace = single[0], plan->cwd = single[1], plan->program = single[2];
            return 0;
        }
    }
    free(next);
    return EINVAL;
}

int map_plan(int document, char **data, size_t *size)
{
    struct stat found;
    if (fstat(document, &found) < 0)
        return errno;
    if (found.st_size <= 0)
        return EINVAL;
    *size = (size_t)found.st_size;
    *data = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, document, 0);
    return *data == MAP_FAILED ? errno : 0;
}
