/* Gives the compiled guard's parsers words that no agent sends. Compiled with the sanitizers of
 * address and undefined behaviour, which end it at the first wrong access.
 *
 * Arguments: a seed and how many inputs. Prints how many plans and orders were accepted. */
#define main guard_main
#include "../../sandbox_agent/enforce/guards/guard.c"
#undef main

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
    uint32_t counts[3] = {1 + (uint32_t)below(5), (uint32_t)below(5), (uint32_t)below(5)};
    size_t size = sizeof counts;
    memcpy(data, counts, sizeof counts);
    for (uint32_t i = 0; i < 3 + counts[0] + counts[1] + counts[2]; i++) {
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
        switch (below(5)) {
        case 0:
            data[below(size)] = (char)below(256);
            break;
        case 1:
            size = 1 + below(size);
            break;
        case 2:
            if (size >= 12)
                memcpy(data + 4 * below(3), &counts[below(7)], sizeof counts[0]);
            break;
        case 3:
            data[below(size)] = '\0';
            break;
        default:
            memset(data + size, (int)below(256), 8);
            size += below(8);
        }
    }
    return size;
}

/* Reads all that an accepted plan refers to. */
static uint64_t read_all(const struct plan *plan)
{
    uint64_t total = strlen(plan->workspace) + strlen(plan->cwd) + strlen(plan->program);
    for (char **word = plan->argv; *word != NULL; word++)
        total += strlen(*word);
    for (char **word = plan->envp; *word != NULL; word++)
        total += strlen(*word);
    for (uint32_t i = 0; i < plan->operands; i++)
        total += strlen(plan->inside[i]);
    return total;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 10) * 2 + 1;
    uint64_t plans = 0, orders = 0, total = 0;
    int top = open("/proc/self", O_PATH | O_DIRECTORY);
    for (uint64_t left = strtoull(argv[2], NULL, 10); left > 0; left--) {
        char text[1024];
        size_t size = mutated(text, whole_plan(text));
        char *exact = malloc(size); /* so that any byte beyond it is noticed */
        memcpy(exact, text, size);
        struct plan plan;
        if (parse_plan(exact, size, &plan) == 0) {
            plans++;
            total += read_all(&plan);
            free(plan.argv);
        }
        free(exact);

        static const char letters[] = "tks 0123456789-\0x";
        size = below(24);
        exact = malloc(size + 1);
        for (size_t i = 0; i < size; i++)
            exact[i] = letters[below(sizeof letters)];
        struct order order;
        orders += (uint64_t)(size > 0 && parse_order(exact, size, &order));

        static const char *const steps[] = {"..", ".", "", "fd", "0", "cwd", "self", "task", "root"};
        size_t length = 0;
        for (uint64_t count = below(60); count > 0; count--) {
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                       steps[below(9)], count > 1 ? "/" : "");
        }
        text[length] = '\0';
        if (left % 16 == 0) {
            int fd = open_beneath(top, text, (int)below(2));
            if (fd >= 0)
                close(fd);
        }
        free(exact);
    }
    printf("%llu %llu %llu\n", (unsigned long long)plans, (unsigned long long)orders,
           (unsigned long long)total);
    return 0;
}
