/* What a debugger is pointed at: a function, a variable, a structure. */
#include <stdio.h>

struct point {
    int x;
    int y;
};

static int total = 0;

int add(int amount)
{
    total += amount;
    return total;
}

int main(void)
{
    struct point corner = {3, 4};
    add(corner.x);
    add(corner.y);
    printf("total %d\n", total);
    return 0;
}
