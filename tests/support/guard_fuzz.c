/* Gives the compiled guard's parsers words that no agent sends. Compiled with the sanitizers of
 * address and undefined behaviour, which end it at the first wrong access.
 *
 * An input is a letter and what follows it: `p` and a plan, `o` and an order, any other and an
 * operand. This program makes them: its arguments are a seed and how many, and it prints how many
 * plans, orders and operands were accepted. With GUIDED, clang's libFuzzer makes them instead, by
 * what they reach in the code; CONTRIBUTING.md says how. Operands are looked up in the working
 * directory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../sandbox_agent/enforce/guards/guard/guard.h"

static struct {
    unsigned long long plans, orders, operands, read;
    int top;
} tried = {.top = -1};

/* Reads all that an accepted plan refers to. */
static void read_all(const struct plan *plan)
{
    tried.read += strlen(plan->workspace) + strlen(plan->cwd) + strlen(plan->program);
    for (char **word = plan->argv; *word != NULL; word++)
        tried.read += strlen(*word);
    for (char **word = plan->envp; *word != NULL; word++)
        tried.read += strlen(*word);
    for (uint32_t i = 0; i < plan->operands; i++)
        tried.read += strlen(plan->inside[i]);
}

static void try_plan(char *text, size_t size)
{
    struct plan plan;
    if (parse_plan(text, size, &plan) == 0) {
        tried.plans++;
        read_all(&plan);
        free(plan.argv);
    }
}

static void try_operand(const char *text)
{
    if (tried.top < 0)
        tried.top = open(".", O_PATH | O_DIRECTORY);
    tried.operands += stays(tried.top, text) == 1;
    int fd = open_beneath(tried.top, text, 1);
    if (fd >= 0)
        close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct order order;
    if (size < 2)
        return 0;
    int ends = data[0] != 'p' && data[0] != 'o'; /* as an operand does */
    size_t length = size - 1;
    char *exact = malloc(length + (size_t)ends); /* so that any byte beyond it is noticed */
    memcpy(exact, data + 1, length);
    if (data[0] == 'p') {
        try_plan(exact, length);
    } else if (data[0] == 'o') {
        tried.orders += (unsigned)parse_order(exact, length, &order);
    } else {
        exact[length] = '\0';
        try_operand(exact);
    }
    free(exact);
    return 0;
}

#ifndef GUIDED
static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t below(uint64_t most)
{
    return most ? next_random() % most : 0;
}

/* A plan of a few words, as compiled.py writes it. */
static size_t whole_plan(char *data)
{
    static const uint64_t most[4] = {5, 5, 5, 2};
    uint32_t head[4];
    for (int i = 0; i < 4; i++)
        head[i] = (i == 0) + (uint32_t)below(most[i]);
    size_t size = sizeof head;
    memcpy(data, head, sizeof head);
    for (uint32_t i = 0; i < 3 + head[0] + head[1] + head[2]; i++) {
        for (uint64_t length = below(12); length > 0; length--)
            data[size++] = (char)(1 + below(255));
        data[size++] = '\0';
    }
    return size;
}

static size_t mutated(char *data, size_t size)
{
    static const uint32_t counts[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffd};
    for (uint64_t rounds = below(4); rounds > 0; rounds--) {
        uint64_t at = below(size), count = 4 * below(4);
        switch (below(5)) {
        case 0:
            data[at] = (char)below(256);
            break;
        case 1:
            size = 1 + at;
            break;
        case 2:
            if (size >= 16)
                memcpy(data + count, &counts[below(7)], sizeof counts[0]);
            break;
        case 3:
            data[at] = '\0';
            break;
        default:
            memset(data + size, (int)below(256), 8);
            size += below(8);
        }
    }
    return size;
}

static size_t some_order(char *text)
{
    static const char letters[] = "tks 0123456789-\0x";
    size_t size = 1 + below(24);
    for (size_t i = 0; i < size; i++)
        text[i] = letters[below(sizeof letters)];
    return size;
}

/* Steps that the test has laid out, and others. */
static size_t some_operand(char *text)
{
    static const char *const steps[] = {"..",   ".",    "",    "deep", "er",  "file", "in",
                                        "into", "back", "top", "gone", "new", "a",    "out"};
    size_t length = 1;
    text[0] = below(2) ? 'f' : 'n';
    for (uint64_t count = below(60); count > 0; count--) {
        const char *step = steps[below(14)];
        length += (size_t)sprintf(text + length, "%s%s", step, count > 1 ? "/" : "");
    }
    return length;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 10) * 2 + 1;
    for (uint64_t left = strtoull(argv[2], NULL, 10); left > 0; left--) {
        char text[1024];
        text[0] = 'p';
        LLVMFuzzerTestOneInput((uint8_t *)text, 1 + mutated(text + 1, whole_plan(text + 1)));
        text[0] = 'o';
        LLVMFuzzerTestOneInput((uint8_t *)text, 1 + some_order(text + 1));
        text[0] = 'x';
        if (left % 16 == 0)
            LLVMFuzzerTestOneInput((uint8_t *)text, 1 + some_operand(text + 1));
    }
    printf("%llu %llu %llu %llu\n", tried.plans, tried.orders, tried.operands, tried.read);
    return 0;
}
#endif
