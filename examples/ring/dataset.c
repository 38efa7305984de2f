#include "dataset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, BATCH = 256 * BLOCK };

typedef struct {
    blake2b hash;
    dataset *result;
    size_t root_length;
    uint8_t *batch;
} walk;

static int fail(walk *w, const char *path, const char *why)
{
    snprintf(w->result->error, sizeof w->result->error, "%.200s: %s", path, why);
    return -1;
}

static void hash_number(blake2b *hash, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    blake2b_update(hash, bytes, sizeof bytes);
}

static void hash_text(blake2b *hash, const char *text)
{
    hash_number(hash, strlen(text));
    blake2b_update(hash, text, strlen(text));
}

static int is_zero(const uint8_t *p, size_t length)
{
    return p[0] == 0 && memcmp(p, p + 1, length - 1) == 0;
}

/* Blocks that are not all zero enter with their offset. So a hole and zeros that were written are the same, as they are to
 * any program that reads them, and a hole is skipped without reading it. */
static int hash_content(walk *w, int fd, const char *path)
{
    off_t offset = 0;

    for (;;) {
        off_t data = lseek(fd, offset, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            return 0; /* only a hole remains */
        if (data < 0)
            data = offset; /* a file system without SEEK_DATA */
        offset = data - data % BLOCK;

        size_t filled = 0;
        while (filled < BATCH) {
            ssize_t n = pread(fd, w->batch + filled, BATCH - filled, offset + (off_t)filled);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return fail(w, path, strerror(errno));
            if (n == 0)
                break;
            filled += (size_t)n;
        }
        if (filled == 0)
            return 0;
        for (size_t at = 0; at < filled; at += BLOCK) {
            size_t length = filled - at < BLOCK ? filled - at : BLOCK;
            if (is_zero(w->batch + at, length))
                continue;
            hash_number(&w->hash, (uint64_t)offset + at);
            blake2b_update(&w->hash, w->batch + at, length);
            w->result->bytes += length;
        }
        offset += (off_t)filled;
    }
}

static int hash_file(walk *w, const char *path, const struct stat *info)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail(w, path, strerror(errno));
    hash_number(&w->hash, (uint64_t)info->st_size);
    hash_number(&w->hash, (uint64_t)info->st_mtim.tv_sec);
    hash_number(&w->hash, (uint64_t)info->st_mtim.tv_nsec);
    int status = hash_content(w, fd, path);
    close(fd);
    w->result->files++;
    return status;
}

static int hash_link(walk *w, const char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return fail(w, path, strerror(errno));
    target[length] = '\0';
    hash_text(&w->hash, target);
    return 0;
}

/* By bytes: alphasort follows the locale, which may differ between nodes. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int hash_directory(walk *w, const char *path);

static int hash_entry(walk *w, const char *path)
{
    struct stat info;

    if (lstat(path, &info) < 0)
        return fail(w, path, strerror(errno));
    hash_text(&w->hash, path + w->root_length);
    hash_number(&w->hash, info.st_mode & S_IFMT);
    if (S_ISLNK(info.st_mode))
        return hash_link(w, path);
    hash_number(&w->hash, info.st_mode & 07777);
    if (S_ISREG(info.st_mode))
        return hash_file(w, path, &info);
    if (S_ISDIR(info.st_mode))
        return hash_directory(w, path);
    return fail(w, path, "neither file, directory nor symbolic link");
}

static int hash_directory(walk *w, const char *path)
{
    struct dirent **entries;
    int status = 0;
    int count = scandir(path, &entries, not_dots, by_bytes);

    if (count < 0)
        return fail(w, path, strerror(errno));
    hash_number(&w->hash, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        char child[PATH_MAX];
        int length = snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
        if (status == 0)
            status = length >= (int)sizeof child ? fail(w, path, "path too long") : hash_entry(w, child);
        free(entries[i]);
    }
    free(entries);
    return status;
}

int dataset_read(const char *root, dataset *result)
{
    walk w = {.result = result, .root_length = strlen(root)};

    memset(result, 0, sizeof *result);
    w.batch = malloc(BATCH);
    if (w.batch == NULL)
        return fail(&w, root, strerror(errno));
    blake2b_init(&w.hash);
    int status = hash_directory(&w, root);
    blake2b_final(&w.hash, result->digest);
    free(w.batch);
    return status;
}
