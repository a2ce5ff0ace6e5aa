/* The program that attacks try to run: it makes a marker in its working directory, and ends.
 *
  * It uses no C library, so one source makes a static program, a dynamic one for the loader of any
  * distribution, and a shared library whose constructor makes the marker. */
#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
#define OPENAT 257
#define EXIT_GROUP 231
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#define OPENAT 56
#define EXIT_GROUP 94
#else
#error "write its system calls for this machine"
#endif

static void mark(void) {
    call(OPENAT, -100, (long)"marker", 0101 /* O_WRONLY | O_CREAT */, 0644);
}

#ifdef LIBRARY
__attribute__((constructor)) static void loaded(void) { mark(); }
#else
void _start(void) {
    mark();
    call(EXIT_GROUP, 0, 0, 0, 0);
    __builtin_unreachable();
}
#endif
