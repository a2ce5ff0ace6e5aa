/* Runs machine code that it has written itself. An attempt has worked if it returns the answer. */
#include "attempt.h"

#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>

#define ANSWER 42
#define SIZE 4096

#if defined(__x86_64__)
static const unsigned char code[] = {0xb8, ANSWER, 0, 0, 0, 0xc3};
#else
static const uint32_t code[] = {0x52800000 | ANSWER << 5, 0xd65f03c0};
#endif

static long call(void *at) {
    int (*function)(void);
    __builtin___clear_cache(at, (char *)at + sizeof code);
    memcpy(&function, &at, sizeof at);
    return function() == ANSWER ? 0 : -1;
}

static long written_through(void *writable, void *executable) {
    if (writable == MAP_FAILED || executable == MAP_FAILED)
        return -1;
    memcpy(writable, code, sizeof code);
    return call(executable);
}

static void *map(int protection, int flags, int fd) {
    return mmap(NULL, SIZE, protection, flags, fd, 0);
}

static long mapped(void) {
    void *at = map(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return written_through(at, at);
}
static long changed_to(int protection) {
    void *at = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at == MAP_FAILED)
        return -1;
    memcpy(at, code, sizeof code);
    if (mprotect(at, SIZE, protection) < 0)
        return -1;
    return call(at);
}
static long made_executable(void) { return changed_to(PROT_READ | PROT_EXEC); }
static long made_both(void) { return changed_to(PROT_READ | PROT_WRITE | PROT_EXEC); }
static long with_key(void) {
    void *at = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at == MAP_FAILED)
        return -1;
    memcpy(at, code, sizeof code);
    if (syscall(SYS_pkey_mprotect, at, (size_t)SIZE, PROT_READ | PROT_EXEC, -1) < 0)
        return -1;
    return call(at);
}
static long heap(void) {
    char *at = sbrk(2 * SIZE);
    at = (char *)(((uintptr_t)at + SIZE - 1) & ~(uintptr_t)(SIZE - 1));
    memcpy(at, code, sizeof code);
    if (mprotect(at, SIZE, PROT_READ | PROT_EXEC) < 0)
        return -1;
    return call(at);
}
static long stack(void) {
    char room[2 * SIZE];
    char *at = (char *)(((uintptr_t)room + SIZE - 1) & ~(uintptr_t)(SIZE - 1));
    memcpy(at, code, sizeof code);
    if (mprotect(at, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN) < 0 &&
        mprotect(at, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC) < 0)
        return -1;
    return call(at);
}
static long personality_bit(void) {
    if (personality(READ_IMPLIES_EXEC) < 0)
        return -1;
    void *at = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return written_through(at, at);
}
static long without_protection(void) {
    if (prctl(65 /* PR_SET_MDWE */, 0, 0, 0, 0) < 0)
        return -1;
    return mapped();
}
/* The memory is executable before it is written through a second, writable mapping. */
static long doubled(int fd, int flags) {
    void *executable = map(PROT_READ | PROT_EXEC, flags, fd);
    if (executable == MAP_FAILED)
        return -1;
    void *writable = mremap(executable, 0, SIZE, MREMAP_MAYMOVE);
    if (writable == MAP_FAILED || mprotect(writable, SIZE, PROT_READ | PROT_WRITE) < 0)
        return -1;
    return written_through(writable, executable);
}
static long shared_twice(void) { return doubled(-1, MAP_SHARED | MAP_ANONYMOUS); }
static long zero_device_twice(void) { return doubled(open("/dev/zero", O_RDWR), MAP_SHARED); }
static long shared_with_a_child(void) {
    void *at = map(PROT_READ | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1);
    if (at == MAP_FAILED)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (mprotect(at, SIZE, PROT_READ | PROT_WRITE) < 0)
            _exit(1);
        memcpy(at, code, sizeof code);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status ? -1 : call(at);
}
static long file_twice(int fd) {
    if (fd < 0 || ftruncate(fd, SIZE) < 0)
        return -1;
    void *writable = map(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    void *executable = map(PROT_READ | PROT_EXEC, MAP_SHARED, fd);
    if (executable == MAP_FAILED)
        executable = map(PROT_READ | PROT_EXEC, MAP_PRIVATE, fd);
    return written_through(writable, executable);
}
static long memory_file_twice(void) { return file_twice((int)syscall(SYS_memfd_create, "x", 0)); }
static long file_in_workspace(void) {
    return file_twice(open("/workspace/code", O_RDWR | O_CREAT | O_TRUNC, 0755));
}
static long file_in_tmp(void) {
    return file_twice(open("/tmp/code", O_RDWR | O_CREAT | O_TRUNC, 0755));
}
static long file_made_executable(void) {
    int fd = open("/tmp/later", O_RDWR | O_CREAT | O_TRUNC, 0755);
    if (fd < 0 || ftruncate(fd, SIZE) < 0)
        return -1;
    void *at = map(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    if (at == MAP_FAILED)
        return -1;
    memcpy(at, code, sizeof code);
    if (mprotect(at, SIZE, PROT_READ | PROT_EXEC) < 0)
        return -1;
    return call(at);
}
static long segment_twice(void) {
    int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0700);
    if (id < 0)
        return -1;
    void *writable = shmat(id, NULL, 0);
    void *executable = shmat(id, NULL, SHM_EXEC | SHM_RDONLY);
    shmctl(id, IPC_RMID, NULL);
    return written_through(writable, executable);
}
/* Through its own memory file, a process may write where it otherwise may not. */
__attribute__((noinline, aligned(SIZE))) static int replaced(void) {
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop");
    return 0;
}
static long own_memory_through(const char *path) {
    int fd = open(path, O_RDWR);
    if (fd < 0 || pwrite(fd, code, sizeof code, (off_t)(uintptr_t)replaced) != sizeof code)
        return -1;
    int (*volatile function)(void) = replaced;
    return function() == ANSWER ? 0 : -1;
}
static long memory_through_proc(void) { return own_memory_through("/proc/self/mem"); }
static long memory_through_thread(void) { return own_memory_through("/proc/thread-self/mem"); }

int main(void) {
    attempt("mapped writable and executable", mapped);
    attempt("made executable", made_executable);
    attempt("made writable and executable", made_both);
    attempt("made executable with a key", with_key);
    attempt("heap", heap);
    attempt("stack", stack);
    attempt("READ_IMPLIES_EXEC", personality_bit);
    attempt("switched off", without_protection);
    attempt("shared mapping twice", shared_twice);
    attempt("/dev/zero twice", zero_device_twice);
    attempt("shared with a child", shared_with_a_child);
    attempt("memory file twice", memory_file_twice);
    attempt("file in the workspace twice", file_in_workspace);
    attempt("file in /tmp twice", file_in_tmp);
    attempt("file made executable", file_made_executable);
    attempt("SysV segment twice", segment_twice);
    attempt("/proc/self/mem", memory_through_proc);
    attempt("/proc/thread-self/mem", memory_through_thread);
    return 0;
}
