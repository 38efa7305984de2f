/* make-dataset DIRECTORY: the dataset of the demo, always the same bytes, modes and times.
 *
 * 64 MiB outside holes: one large file, 2,000 small ones, and one of each thing that copies tend to lose: a symbolic link,
 * holes, a set-user-id bit, a sticky directory, a time before 1970, an empty file. It is made beside the directory and renamed
 * when complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_FILES = 2000, SMALL_DIRECTORIES = 40, EXTENT = 65536 };
static const int64_t TOTAL = 64LL << 20;
static const int64_t SPARSE_SIZE = 256LL << 20;
static const time_t MODIFIED = 1325376000; /* 2012-01-01, in the spirit of the codes that read such data */

static int64_t written;
static char root[3800];

static void fail(const char *path)
{
    fprintf(stderr, "make-dataset: %s: %s\n", path, strerror(errno));
    exit(1);
}

__attribute__((format(printf, 1, 2))) static const char *in_root(const char *format, ...)
{
    static char path[4096];
    va_list arguments;
    int length = snprintf(path, sizeof path, "%s/", root);
    va_start(arguments, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    return path;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void write_all(int fd, const char *path, const void *data, size_t length, off_t offset)
{
    const char *p = data;
    written += (int64_t)length;
    while (length > 0) {
        ssize_t n = pwrite(fd, p, length, offset);
        if (n < 0)
            fail(path);
        p += n;
        offset += n;
        length -= (size_t)n;
    }
}

static void write_random(int fd, const char *path, uint64_t seed, int64_t length, off_t offset)
{
    static uint64_t block[EXTENT / sizeof(uint64_t)];
    while (length > 0) {
        size_t take = length < EXTENT ? (size_t)length : EXTENT;
        for (size_t i = 0; i < sizeof block / sizeof *block; i++)
            block[i] = next_random(&seed);
        write_all(fd, path, block, take, offset);
        offset += (off_t)take;
        length -= (int64_t)take;
    }
}

static int create(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        fail(path);
    return fd;
}

/* Mode and time last: writing changes the one and chown-like calls the other. */
static void finish(int fd, const char *path, mode_t mode, struct timespec modified)
{
    struct timespec times[2] = {modified, modified};
    if (fchmod(fd, mode) < 0 || futimens(fd, times) < 0 || close(fd) < 0)
        fail(path);
}

static void directory(const char *path, mode_t mode)
{
    if (mkdir(path, 0755) < 0 || chmod(path, mode) < 0)
        fail(path);
}

static struct timespec at(time_t seconds, long nanoseconds)
{
    return (struct timespec){seconds, nanoseconds};
}

static void small_files(void)
{
    uint64_t sizes = 1;

    directory(in_root("small"), 0755);
    for (int i = 0; i < SMALL_DIRECTORIES; i++)
        directory(in_root("small/%02d", i), 0755);
    for (int i = 0; i < SMALL_FILES; i++) {
        const char *path = in_root("small/%02d/%04d.dat", i % SMALL_DIRECTORIES, i);
        int fd = create(path);
        write_random(fd, path, (uint64_t)i + 1000, (int64_t)(1 + next_random(&sizes) % 14335), 0);
        finish(fd, path, i % 3 ? 0644 : 0600, at(MODIFIED + i, 1000 * i + 7));
    }
}

/* Three extents of 64 KiB, holes before, between and behind them. */
static void sparse_file(void)
{
    const char *path = in_root("sparse.img");
    int fd = create(path);

    if (ftruncate(fd, SPARSE_SIZE) < 0)
        fail(path);
    write_random(fd, path, 11, EXTENT, 1 << 20);
    write_random(fd, path, 12, EXTENT, (1 << 20) + 2 * EXTENT);
    write_random(fd, path, 13, EXTENT, SPARSE_SIZE / 2);
    finish(fd, path, 0644, at(MODIFIED, 123456789));
}

static void executable(void)
{
    static const char text[] = "#!/bin/sh\n# A set-user-id bit on a script gives nobody anything; it is here to be kept.\n"
                               "echo \"from the staged dataset, on $(hostname)\"\n";
    const char *path;
    int fd;

    directory(in_root("bin"), 0755);
    path = in_root("bin/hello");
    fd = create(path);
    write_all(fd, path, text, sizeof text - 1, 0);
    finish(fd, path, 04755, at(MODIFIED, 0));
}

static void odd_ones(void)
{
    static const char text[] = "The Sedov solution was published in 1946.\n";
    const char *path = in_root("old.txt");
    int fd = create(path);

    write_all(fd, path, text, sizeof text - 1, 0);
    finish(fd, path, 0444, at(-757382400, 987654321)); /* 1946-01-01 */

    path = in_root("empty");
    fd = create(path);
    finish(fd, path, 0644, at(MODIFIED, 0));

    directory(in_root("shared"), 01777);
    path = in_root("latest");
    if (symlink("large.bin", path) < 0)
        fail(path);
}

static void large_file(void)
{
    const char *path = in_root("large.bin");
    int fd = create(path);

    write_random(fd, path, 42, TOTAL - written, 0);
    finish(fd, path, 0640, at(MODIFIED, 999999999));
}

int main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '\0') {
        fprintf(stderr, "usage: make-dataset DIRECTORY\n");
        return 2;
    }
    if (access(argv[1], F_OK) == 0) {
        errno = EEXIST;
        fail(argv[1]);
    }
    if ((size_t)snprintf(root, sizeof root, "%s.partial", argv[1]) >= sizeof root) {
        errno = ENAMETOOLONG;
        fail(argv[1]);
    }
    umask(022);
    directory(root, 0755);
    small_files();
    sparse_file();
    executable();
    odd_ones();
    large_file();
    if (rename(root, argv[1]) < 0)
        fail(argv[1]);
    printf("%s: %lld bytes outside holes\n", argv[1], (long long)written);
    return written == TOTAL ? 0 : 1;
}
