/* ring: does MPI work here, how fast is the network between the ranks, and does every node hold the same data?
 *
 *     ring [-n ROUNDS] [-m MAX_BYTES] [DIRECTORY]
 *
 * 1. A token goes around all ranks ROUNDS times; each adds its number, rank 0 checks the sum.
 * 2. A vector is summed over all ranks and compared with the closed form.
 * 3. Rank 0 plays ping-pong with rank 1 and with the last rank, 8 bytes to MAX_BYTES.
 * 4. Every rank hashes DIRECTORY; rank 0 compares.
 *
 * Exit code 0 when every check held, 1 when one did not, 2 for wrong arguments.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataset.h"

enum { TAG = 7 };

static int rank, size;

/* The ranks that have nothing to do sleep: a rank that waits inside MPI spins, and on a machine where several nodes share a
 * core it would take the processor from those that are being measured. */
static void wait_for_all(void)
{
    const struct timespec pause = {0, 1000000};
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        nanosleep(&pause, NULL);
    }
}

static int ring(int rounds)
{
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    /* Each rank adds rank + 1. */
    const long long expected = (long long)rounds * size * (size + 1) / 2;
    long long token = 0;
    double start = MPI_Wtime();

    for (int round = 0; round < rounds; round++) {
        if (rank == 0) {
            token += 1;
            MPI_Sendrecv_replace(&token, 1, MPI_LONG_LONG, next, TAG, previous, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_LONG_LONG, previous, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token += rank + 1;
            MPI_Send(&token, 1, MPI_LONG_LONG, next, TAG, MPI_COMM_WORLD);
        }
    }
    if (rank != 0)
        return 1;
    printf("ring        %d ranks, %d rounds, %.3f ms each: token %lld, expected %lld: %s\n", size, rounds,
           (MPI_Wtime() - start) * 1e3 / rounds, token, expected, token == expected ? "ok" : "WRONG");
    return token == expected;
}

static int all_reduce(int rounds)
{
    enum { COUNT = 65536 };
    double *sum = malloc(2 * COUNT * sizeof *sum);
    double *mine = sum + COUNT;
    int wrong = 0, all_wrong = 0;

    if (sum == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < COUNT; i++)
        mine[i] = rank + 1 + i;
    double start = MPI_Wtime();
    for (int round = 0; round < rounds; round++)
        MPI_Allreduce(mine, sum, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double each = (MPI_Wtime() - start) / rounds;
    /* Whole numbers far below 2^53: exact in any order of summation. */
    for (int i = 0; i < COUNT; i++)
        wrong += sum[i] != size * (size + 1) / 2.0 + (double)size * i;
    free(sum);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("all-reduce  %d doubles, %d rounds, %.3f ms each: %d wrong: %s\n", COUNT, rounds, each * 1e3, all_wrong,
               all_wrong == 0 ? "ok" : "WRONG");
    return all_wrong == 0;
}

/* Few repeats where one takes long: 4 MiB at 100 Mbit/s are 0.7 s there and back. */
static int repeats_for(long bytes)
{
    if (bytes <= 4096)
        return 20;
    return bytes <= 65536 ? 5 : bytes <= 524288 ? 2 : 1;
}

/* Half the round trip, seconds, mean of the repeats. */
static double half_round_trip(char *buffer, long bytes, int peer)
{
    const int repeats = repeats_for(bytes);
    /* One round that does not count opens the connection and the window; a large message needs none. */
    const int warm_up = bytes <= 524288 ? 1 : 0;
    double start = 0;

    for (int i = -warm_up; i < repeats; i++) {
        if (i == 0)
            start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(buffer, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            MPI_Recv(buffer, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - start) / repeats / 2;
}

/* 8, 64, 512, 4096, then by fours; the last is max itself; 0 after it. */
static long next_size(long bytes, long max)
{
    long next = bytes < 4096 ? bytes * 8 : bytes * 4;
    if (bytes >= max)
        return 0;
    return next > max ? max : next;
}

static void ping_pong(int peer, long max_bytes, const char *peer_name)
{
    if (rank == 0 || rank == peer) {
        char *buffer = malloc((size_t)max_bytes);
        if (buffer == NULL)
            MPI_Abort(MPI_COMM_WORLD, 1);
        memset(buffer, 1, (size_t)max_bytes);
        if (rank == 0)
            printf("ping-pong   rank 0 and rank %d (%s)\n%13s %12s %10s %10s\n", peer, peer_name, "bytes", "latency us",
                   "MB/s", "Mbit/s");
        for (long bytes = 8; bytes > 0; bytes = next_size(bytes, max_bytes)) {
            double seconds = half_round_trip(buffer, bytes, peer);
            if (rank == 0)
                printf("%13ld %12.1f %10.2f %10.1f\n", bytes, seconds * 1e6, (double)bytes / seconds / 1e6,
                       8 * (double)bytes / seconds / 1e6);
        }
        free(buffer);
        fflush(stdout);
    }
    wait_for_all();
}

typedef struct {
    char host[MPI_MAX_PROCESSOR_NAME];
    dataset data;
} seen;

static int compare_data(const char *directory, const char *host)
{
    seen mine, *all = NULL;
    int same = 1;

    memset(&mine, 0, sizeof mine);
    snprintf(mine.host, sizeof mine.host, "%s", host);
    dataset_read(directory, &mine.data);
    if (rank == 0 && (all = calloc((size_t)size, sizeof *all)) == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    wait_for_all();
    MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return 1;
    printf("data        %s\n", directory);
    for (int i = 0; i < size; i++) {
        const dataset *data = &all[i].data;
        int equal = data->error[0] == '\0' && memcmp(data->digest, mine.data.digest, BLAKE2B_BYTES) == 0;
        printf("  rank %3d on %-20s ", i, all[i].host);
        if (data->error[0] != '\0') {
            printf("UNREADABLE %s\n", data->error);
        } else {
            for (int j = 0; j < BLAKE2B_BYTES / 2; j++)
                printf("%02x", data->digest[j]);
            printf("  %llu files, %llu bytes%s\n", (unsigned long long)data->files, (unsigned long long)data->bytes,
                   equal ? "" : "  DIFFERS from rank 0");
        }
        same = same && equal;
    }
    free(all);
    return same;
}

static long number(const char *text, long min, long max)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < min || value > max) {
        if (rank == 0)
            fprintf(stderr, "ring: %s is not a number between %ld and %ld\n", text, min, max);
        MPI_Finalize();
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    int rounds = 10, option, length, ok;
    long max_bytes = 4L << 20;
    char host[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    while ((option = getopt(argc, argv, "n:m:")) != -1) {
        if (option == 'n') {
            rounds = (int)number(optarg, 1, 1000000);
        } else if (option == 'm') {
            max_bytes = number(optarg, 8, 1L << 30);
        } else {
            if (rank == 0)
                fprintf(stderr, "usage: ring [-n ROUNDS] [-m MAX_BYTES] [DIRECTORY]\n");
            MPI_Finalize();
            return 2;
        }
    }

    char(*hosts)[MPI_MAX_PROCESSOR_NAME] = calloc((size_t)size, sizeof *hosts);
    if (hosts == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Allgather(host, sizeof host, MPI_CHAR, hosts, sizeof host, MPI_CHAR, MPI_COMM_WORLD);

    ok = ring(rounds);
    ok &= all_reduce(rounds < 3 ? rounds : 3);
    if (size > 1)
        ping_pong(1, max_bytes, hosts[1]);
    if (size > 2)
        ping_pong(size - 1, max_bytes, hosts[size - 1]);
    if (optind < argc)
        ok &= compare_data(argv[optind], host);
    free(hosts);

    MPI_Bcast(&ok, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s\n", ok ? "all checks passed" : "A CHECK FAILED");
        fflush(stdout);
    }
    MPI_Finalize();
    return ok ? 0 : 1;
}
